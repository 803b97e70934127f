"""The matrices of Winograd's minimal filtering for three taps, and sums of vectors by their rows.

m results of three taps along an axis need m + 2 products: y = A' [(G w) * (B' d)], and y = A' [(G w G') * (B' d B)] A
for an image; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. The matrices follow from m + 1
points at which polynomials are multiplied, and the point at infinity. How much rounding they add depends on the points:
Barabasz, Anderson, Soodhalter and Gregg, "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep
Neural Networks", 2020. With 0, ±3/4 and ±3/2 the largest error is a quarter of what it is with 0, ±1 and ±2 (`./dev
bench winograd`), and all factors of A and B are exact in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.expressions import dtype_of, integer
from service.compiler.schedules.writer import local, put, vector
from service.runtime.session import Array

TAPS = 3
Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Transform:
    """For `results` along an axis: `data` is B', `weight` is G, `result` is A'."""

    data: Matrix
    weight: Matrix
    result: Matrix

    @property
    def results(self) -> int:
        """m, the results along an axis."""
        return len(self.result)

    @property
    def elements(self) -> int:
        """m + 2, the elements along an axis that they are computed of."""
        return len(self.data)

    def of_weight(self, taps: Array) -> Array:
        """G w G' in float64 for a weight of shape (3, 3, ...): shape (elements, elements, ...)."""
        factors = np.array(self.weight, "float64")
        products: Array = np.einsum("ak,bl,kl...->ab...", factors, factors, taps.astype("float64"), optimize=True)
        return products


def transform(points: Sequence[Fraction]) -> Transform:
    """By the method of Toom and Cook, for these points and the one at infinity; the points are different numbers."""
    results = len(points) - 1
    rest = Fraction(0)
    others = [[other for other in points if other != point] for point in points]
    scale = [
        prod((point - other for other in its), start=Fraction(1)) for point, its in zip(points, others, strict=True)
    ]
    return Transform(
        data=(*((*_polynomial(its), rest) for its in others), tuple(_polynomial(points))),
        weight=(
            *(tuple(point**power / size for power in range(TAPS)) for point, size in zip(points, scale, strict=True)),
            (rest, rest, Fraction(1)),
        ),
        result=tuple(
            (*(point**power for point in points), Fraction(int(power == results - 1))) for power in range(results)
        ),
    )


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial with these roots, the constant one first."""
    factors = [Fraction(1)]
    for root in roots:
        moved, same = [Fraction(0), *factors], [*factors, Fraction(0)]
        factors = [one - root * other for one, other in zip(moved, same, strict=True)]
    return factors


TRANSFORMS = {
    2: transform([Fraction(0), Fraction(1), Fraction(-1)]),
    4: transform([Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)]),
}


def combined(factors: Sequence[Fraction], element: Callable[[int], Any]) -> Any:
    """The sum of elements times their factors, which are not all 0.

    Rows for a point and its negative have equal factors at even places and opposite ones at odd places: the two halves
    are written alike in both, so that they are computed once.
    """
    even, odd = (_half(factors, element, first) for first in (0, 1))
    if even is None or odd is None:
        sign, total = even or odd or (1, None)
        return total if sign > 0 else tirx.const(0.0, dtype_of(total)) - total
    (sign, total), (other_sign, other) = even, odd
    if sign < other_sign:
        return other - total
    joined = total + other if sign == other_sign else total - other
    return joined if sign > 0 else tirx.const(0.0, dtype_of(joined)) - joined


def along_both(
    matrix: Matrix, width: int, dtype: str, element: Callable[[int, Any, Any], Any], store: Callable[..., None]
) -> None:
    """Writes the loops of matrix X matrix' for vectors of `width`.

    `element(i, j, lane)` gives X; `store(a, b, lane, value)` takes the result. Here j and a are variables of loops.
    """
    size = len(matrix[0])
    half = local(len(matrix) * size * width, dtype)
    with T.serial(0, integer(size)) as j:
        for a, factors in enumerate(matrix):
            with vector(width) as lane:
                total = combined(factors, partial(lambda lane, i: element(i, j, lane), lane))
                put(half, total, integer(a * size * width) + j * integer(width) + lane)
    with T.serial(0, integer(len(matrix))) as a:
        for b, factors in enumerate(matrix):
            with vector(width) as lane:
                first = a * integer(size * width) + lane
                store(a, b, lane, combined(factors, partial(lambda first, j: half[first + integer(j * width)], first)))


def _half(factors: Sequence[Fraction], element: Callable[[int], Any], first: int) -> tuple[int, Any] | None:
    """The sum over every second place from `first` on, as a sign and what it stands before; None if all factors are 0.

    Its first term is positive, and those with the factor 1 come first: the others are multiplied and added at once.
    """
    places = sorted((at for at in range(first, len(factors), 2) if factors[at]), key=lambda at: abs(factors[at]) != 1)
    if not places:
        return None
    sign = 1 if factors[places[0]] > 0 else -1
    total: Any = None
    for at in places:
        value, size = element(at), abs(factors[at])
        term = value if size == 1 else value * tirx.const(float(size), dtype_of(value))
        added = (factors[at] > 0) == (sign > 0)
        total = term if total is None else total + term if added else total - term
    return sign, total
