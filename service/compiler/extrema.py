"""The larger and the smaller of two scalars as PyTorch has them: NaN where either is NaN."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from service.compiler.pointwise import dtype_of


def is_float(x: Any) -> bool:
    """Whether a scalar of TensorIR is of a floating-point dtype."""
    return "float" in dtype_of(x)


def maximum(x: Any, y: Any) -> Any:
    """NaN where either is NaN; `tirx.max` loses it."""
    return tirx.Select(tirx.Or(x > y, tirx.isnan(x)), x, y) if is_float(x) else tirx.max(x, y)


def minimum(x: Any, y: Any) -> Any:
    """NaN where either is NaN; `tirx.min` loses it."""
    return tirx.Select(tirx.Or(x < y, tirx.isnan(x)), x, y) if is_float(x) else tirx.min(x, y)
