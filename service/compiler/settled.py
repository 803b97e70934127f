"""What PyTorch settles before anything is translated: constants that it computes itself, and shapes and dtypes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.fx
from tvm import tirx

from service.compiler.site import Site
from service.errors import ImportFailed


def is_foldable(node: torch.fx.Node, constants: Collection[torch.fx.Node]) -> bool:
    """Whether PyTorch itself computes `node` now: it depends on `constants` alone, and is small."""
    value: Any = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(node.target, torch._ops.OpOverload):
        return False
    return all(each in constants for each in node.all_input_nodes) and _is_small(value)


FOLDED_ELEMENTS = 1 << 20


def _is_small(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape) and value.numel() <= FOLDED_ELEMENTS


def hold_against(value: Any, converted: Any, translation: Any, site: Site) -> None:
    """Raises ImportFailed where the dtype or the shape of a converted value is not PyTorch's."""
    if isinstance(value, list | tuple):
        for each, mine in zip(value, converted, strict=True):
            hold_against(each, mine, translation, site)
        return
    if value is None or converted is None:
        return
    mine, dtype = converted.ty, str(value.dtype).removeprefix("torch.")
    dims = translation.dims(value)
    same = str(mine.dtype) == dtype and mine.shape is not None and len(mine.shape) == len(dims)
    same = same and all(
        not isinstance(dim, int) or not isinstance(size, tirx.IntImm) or int(size) == dim
        for size, dim in zip(mine.shape, dims, strict=True)
    )
    if not same:
        raise ImportFailed(
            f"{site}: the compiled operator would give {mine}, PyTorch gives {dtype} {dims}. "
            "This is a fault of relaxd; write this part of the model in another way.",
            step=0,
            operator=site.operator,
        )
