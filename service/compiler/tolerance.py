"""How far a library's outputs may be from PyTorch eager's, element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.errors import JsonObject
from service.runtime.session import Array

_TINY = 1e-300
# Rounding adds up like a random walk: tolerances grow with the root of the depth, up to this factor.
_DEEPEST = 10.0
# How much more than eager's own rounding a library's may be: it sums in another order.
NOISE = 64.0
# Of halves, whose rounding is coarse: what is several times as far from float64 as eager is not rounding.
NOISE_OF_HALVES = 4.0
_HALVES = ("float16", "bfloat16")
# An output of fewer elements says too little about eager's rounding: its one sum may be exact by luck. Then the last
# digits of the inputs are allowed, a few times over.
FEW = 64
LAST_DIGITS = 8.0
_FLOAT_KINDS = "fcV"


@dataclass(frozen=True)
class Tolerance:
    """Relative to each expected value, and absolute as a fraction of the largest expected magnitude."""

    rtol: float
    scale_atol: float
    floor: float

    def at(self, depth: int) -> Tolerance:
        """For a model of `depth` operators on floats in a row."""
        factor = min(max(math.sqrt(depth), 1.0), _DEEPEST)
        return Tolerance(self.rtol * factor, self.scale_atol * factor, self.floor)

    def to_json(self) -> JsonObject:
        return {"rtol": self.rtol, "scale_atol": self.scale_atol, "noise": NOISE}


_EXACT = Tolerance(0.0, 0.0, 0.0)
TOLERANCES = {
    "float16": Tolerance(2e-3, 1e-3, 1e-7),
    "bfloat16": Tolerance(1e-2, 4e-3, 1e-30),
    "float32": Tolerance(1e-4, 1e-5, 1e-30),
    "float64": Tolerance(1e-7, 1e-9, 1e-200),
}


def tolerance_of(dtype: str, depth: int) -> Tolerance:
    """Exact for integers and bools."""
    return TOLERANCES.get(dtype, _EXACT).at(depth)


def compare(
    actual: Array, expected: Array, wide: Array | None = None, depth: int = 100, input_scale: float = 0.0
) -> JsonObject:
    """The figures of one output: all JSON numbers finite or null, `reason` in words where it did not pass.

    `wide` is what eager gives in float64. An element is right where it is as near to either as the tolerance says, and
    eager's own rounding, the difference of the two, is allowed NOISE times over. `input_scale` is the largest finite
    magnitude of the inputs: a sum of few numbers may cancel to less than their last digits. `excess` is the largest
    error in units of what is allowed, for ranking.
    """
    dtype = expected.dtype.name
    tolerance = tolerance_of(dtype, depth)
    report: JsonObject = {"dtype": actual.dtype.name, "shape": list(actual.shape), "rtol": tolerance.rtol}
    report |= {"max_abs_error": None, "max_rel_error": None, "atol": tolerance.floor, "excess": float("inf")}
    if actual.dtype != expected.dtype:
        return report | _refusal(f"its dtype is {actual.dtype.name}, PyTorch's is {dtype}")
    if actual.shape != expected.shape:
        return report | _refusal(f"its shape is {list(actual.shape)}, PyTorch's is {list(expected.shape)}")
    other = expected if wide is None or wide.shape != expected.shape else wide
    special = _special_mismatch(actual, expected, other)
    if special is not None:
        return report | _refusal(special)
    finite = _finite(actual)
    # Where eager is not finite but eager with float64 is, the latter is what was met.
    theirs = np.where(_finite(expected), expected, other.astype(expected.dtype)) if _is_float(expected) else expected
    digits = LAST_DIGITS * _epsilon(expected) * input_scale if expected.size < FEW else 0.0
    return report | _figures(actual[finite], theirs[finite], other[finite], tolerance, digits)


def zeros_of_other_sign(actual: Array, expected: Array, wide: Array | None) -> int:
    """How many zeros have another sign than in eager, where eager with float64 has the same as eager.

    They compare equal, so they are no error; a division by them tells them apart.
    """
    if not _is_float(expected) or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return 0
    other = expected if wide is None or wide.shape != expected.shape or not _is_float(wide) else wide
    zero = (actual == 0) & (expected == 0) & (np.signbit(expected) == np.signbit(other))
    return int((zero & (np.signbit(actual) != np.signbit(expected))).sum())


def settled(actual: Array, expected: Array, opinions: Sequence[Array], depth: int = 100) -> tuple[Array, int]:
    """`expected` with the element of another opinion of PyTorch's where the two differ and `actual` is of that one.

    And the number of such elements. Opinions of another shape are left out.
    """
    tolerance = tolerance_of(expected.dtype.name, depth)
    result, count = expected, 0
    for opinion in opinions:
        if opinion.shape != expected.shape or actual.shape != expected.shape:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            other = opinion.astype(expected.dtype)
        taken = ~_alike(actual, result, tolerance) & _alike(actual, other, tolerance)
        result, count = np.where(taken, other, result), count + int(taken.sum())
    return result, count


def _alike(left: Array, right: Array, tolerance: Tolerance) -> Any:
    """Which elements are of one kind and, where they are finite, within tolerance."""
    if _is_float(right):
        same = _kind_of_number(left) == _kind_of_number(right)
        left, right = (np.where(np.isfinite(each), each, each.dtype.type(0)) for each in (left, right))
    else:
        same = np.ones(right.shape, bool)
    error, magnitude = _errors(left, right)
    near: Any = error <= tolerance.rtol * magnitude + tolerance.scale_atol * _largest(magnitude) + tolerance.floor
    return same & near


def _epsilon(value: Array) -> float:
    known = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
    return known.get(value.dtype.name, 0.0)


def _figures(actual: Any, expected: Any, wide: Any, tolerance: Tolerance, digits: float) -> JsonObject:
    error, magnitude = _errors(actual, expected)
    second, rounding = error, np.zeros_like(error)
    if wide is not expected and (
        wide.dtype.kind == expected.dtype.kind or {wide.dtype.kind, expected.dtype.kind} == {"f", "V"}
    ):
        usable = _finite(wide)
        second = np.where(usable, _errors(actual, np.where(usable, wide, expected))[0], error)
        rounding = np.where(usable, _errors(expected, np.where(usable, wide, expected))[0], 0.0)
    nearest = np.minimum(error, second)
    times = NOISE_OF_HALVES if expected.dtype.name in _HALVES else NOISE
    noise = float(np.quantile(rounding, 0.9)) * times if rounding.size and tolerance.rtol else 0.0
    atol = max(tolerance.scale_atol * _largest(magnitude), tolerance.floor, noise, digits)
    allowed = atol + tolerance.rtol * magnitude
    beyond, some = nearest > allowed, nearest > 0
    with np.errstate(over="ignore"):
        relative = _largest(error[magnitude > 0] / magnitude[magnitude > 0])
        excess = _largest(nearest[some] / np.maximum(allowed[some], _TINY))
    figures = {
        "atol": atol,
        "max_abs_error": _number(_largest(error)),
        "max_rel_error": _number(relative),
        "excess": excess,
    }
    if beyond.any():
        reason = f"{int(beyond.sum())} of {error.size} values are beyond tolerance, by up to {_largest(nearest):.3g}"
        return figures | _refusal(reason)
    return figures | {"passed": True}


def _refusal(reason: str) -> JsonObject:
    return {"passed": False, "reason": reason}


def _largest(values: Any) -> float:
    return float(values.max()) if values.size else 0.0


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _is_float(value: Array) -> bool:
    return value.dtype.kind in _FLOAT_KINDS


def _finite(value: Any) -> Any:
    return np.isfinite(value) if _is_float(value) else np.ones(value.shape, bool)


def _errors(actual: Array, expected: Array) -> tuple[Any, Any]:
    """Absolute differences and expected magnitudes as float64, exact where they matter: int64 does not wrap around."""
    if expected.dtype.kind in "biu":
        integers = object if expected.dtype.itemsize == 8 else np.int64
        mine, theirs = actual.astype(integers), expected.astype(integers)
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        mine, theirs = actual.astype(wide), expected.astype(wide)
    return np.abs(mine - theirs).astype(np.float64), np.abs(theirs).astype(np.float64)


def _special_mismatch(mine: Array, theirs: Array, wide: Array) -> str | None:
    """What is NaN or infinite must be so in eager or in eager with float64, at the same places."""
    if not _is_float(theirs):
        return None
    kinds = [_kind_of_number(each) for each in (mine, theirs, wide if _is_float(wide) else theirs)]
    wrong = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2])
    if not wrong.any():
        return None
    about_nan = wrong & (np.isnan(mine) != np.isnan(theirs))
    if about_nan.any():
        return f"{int(about_nan.sum())} values are NaN in one and not in the other"
    return f"{int(wrong.sum())} values are infinite in one and not in the other, or of the other sign"


def _kind_of_number(value: Array) -> Any:
    """0 finite, 1 NaN, 2 and 3 the infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(value), 1, np.where(np.isinf(value), np.where(value > 0, 2, 3), 0))
