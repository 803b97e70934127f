"""The phases of transposed convolutions against the definition: service.compiler.corrections.phases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from service.compiler.corrections.phases import lines

OPTIONS = [
    (stride, padding, extra, kernel)
    for stride, padding, extra, kernel in itertools.product((1, 2, 3, 4), (0, 1, 2, 3), (0, 1, 2), (1, 2, 3, 4, 5))
    if extra < stride
]


def by_definition(x, weight, stride, padding, size):
    result = np.zeros(size)
    for (i, element), (k, tap) in itertools.product(enumerate(x), enumerate(weight)):
        place = i * stride - padding + k
        if 0 <= place < size:
            result[place] += element * tap
    return result


def by_phases(x, weight, stride, padding, extra, size):
    result = np.full(size, np.nan)
    for line in lines(stride, padding, extra, len(weight)):
        own = x[max(-line.before, 0) : max(len(x) + min(line.after, 0), 0)]
        own = np.pad(own, (max(line.before, 0), max(line.after, 0)))
        taps = weight[line.start :: stride][::-1]
        assert len(taps) == line.taps
        values = [own[n : n + len(taps)] @ taps for n in range(line.places(len(x)))]
        for place in range(size):
            if (place + padding) % stride == line.start:
                result[place] = values[(place + padding) // stride - line.first] if line.taps else 0
    return result


@pytest.mark.parametrize(("stride", "padding", "extra", "kernel"), OPTIONS)
def test_each_place_is_in_one_phase_and_right(stride, padding, extra, kernel):
    random = np.random.default_rng(kernel)
    for length in (1, 2, 3, 6):
        size = (length - 1) * stride - 2 * padding + kernel + extra
        if size <= 0:
            continue
        x, weight = random.standard_normal(length), random.standard_normal(kernel)
        expected = by_definition(x, weight, stride, padding, size)
        np.testing.assert_allclose(by_phases(x, weight, stride, padding, extra, size), expected, atol=1e-12)
