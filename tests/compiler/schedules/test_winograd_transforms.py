"""The matrices of minimal filtering: exact identities in rational numbers, and factors that float32 has."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from service.compiler.schedules.winograd_transforms import TRANSFORMS, combined, transform

POINTS = [
    [Fraction(0), Fraction(1), Fraction(-1)],
    [Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2)],
    [Fraction(1, 3), Fraction(5), Fraction(-7, 2), Fraction(0)],
]
ALL = [*TRANSFORMS.values(), *map(transform, POINTS)]


def times(matrix, vector):
    return [sum(factor * value for factor, value in zip(row, vector, strict=True)) for row in matrix]


@pytest.mark.parametrize("each", ALL, ids=lambda each: str(each.results))
def test_the_results_are_sums_of_three_products_exactly(each):
    draw = random.Random(0)
    for _ in range(20):
        taps = [Fraction(draw.randint(-9, 9), draw.randint(1, 9)) for _ in range(3)]
        data = [Fraction(draw.randint(-9, 9), draw.randint(1, 9)) for _ in range(each.elements)]
        products = [a * b for a, b in zip(times(each.weight, taps), times(each.data, data), strict=True)]
        direct = [sum(taps[tap] * data[place + tap] for tap in range(3)) for place in range(each.results)]
        assert times(each.result, products) == direct


@pytest.mark.parametrize("results", sorted(TRANSFORMS))
def test_the_factors_at_run_time_are_exact_in_float32(results):
    each = TRANSFORMS[results]
    assert each.results == results
    for matrix in (each.data, each.result):
        assert all(Fraction(float(np.float32(float(factor)))) == factor for row in matrix for factor in row)


def test_rows_are_summed_with_their_signs():
    values = [1.0, 10.0, 100.0, 1000.0]
    for factors in (
        (1, 0, -1, 0),
        (0, 1, 1, 0),
        (0, -1, 1, 0),
        (0, 1, 0, -1),
        (-1, 1, 1, 0),
        (0, -1, 0, -1),
        (-1, -1, 0, 0),
    ):
        total = combined([Fraction(each) for each in factors], lambda at: Number(values[at]))
        assert total.value == sum(factor * value for factor, value in zip(factors, values, strict=True))


class Number:
    """Adds and subtracts as an expression of TensorIR does."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.ty = type("Type", (), {"dtype": "float32"})()

    def __add__(self, other: Number) -> Number:
        return Number(self.value + other.value)

    def __sub__(self, other: Number) -> Number:
        return Number(self.value - other.value)

    def __rsub__(self, other: object) -> Number:
        return Number(float(other.value) - self.value)
