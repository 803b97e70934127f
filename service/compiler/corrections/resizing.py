"""Resizing and sampling at fractional places, as PyTorch's own decompositions into reads and sums.

TVM's `image.resize2d` takes other neighbours at ratios that are not whole, another cubic coefficient, and has no
antialiasing like PyTorch's; `image.grid_sample` rounds and pads otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from service.compiler.translation import Converter

CONVERTERS: dict[str, Converter] = {}


def _is_resizing(name: str) -> bool:
    return name.startswith(("aten.upsample", "aten._upsample", "aten.grid_sampler", "aten.pixel_")) and "backward" not in name


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    str(operator): rule
    for operator, rule in decomposition_table.items()
    if isinstance(operator, torch._ops.OpOverload) and _is_resizing(str(operator)) and not str(operator).endswith("out")
}
