"""Resizing and sampling at fractional places, as PyTorch's own decompositions into reads and sums.

TVM's `image.resize2d` takes other neighbours at ratios that are not whole, another cubic coefficient, and has no
antialiasing like PyTorch's; `image.grid_sample` rounds and pads otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from tvm import relax

from service.compiler.promotion import narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed


def _axis_weights(operator: Any, sizes: tuple[int, int], align: bool, scale: float | None) -> torch.Tensor:
    """(out, in) float64: what each element of one axis gets of each other. Resizing is linear, so eager says it."""
    given, wanted = sizes
    # Two columns: of images one column wide, eager resizes only the first row.
    image = torch.eye(given, dtype=torch.float64).reshape(1, given, given, 1).repeat(1, 1, 1, 2)
    resized: torch.Tensor = operator(image, [wanted, 2], align, scale, None)
    return resized[0, :, :, 0].T.contiguous()


def _antialiased(operator: Any) -> Converter:
    """Two matrix products with weights that eager computes now."""

    def convert(t: Translation, a: Arguments) -> Any:
        value = a.self.meta["val"]
        given, wanted = value.shape[2:], a.result.shape[2:]
        if any(not isinstance(size, int) for size in (*given, *wanted)):
            raise ImportFailed("antialiased resizing is compiled for images of fixed size.", step=0)
        dtype = widened(value.dtype)
        scales = (a.scales_h, a.scales_w)
        rows, columns = (
            _axis_weights(operator, sizes, a.align_corners, scale).to(dtype)
            for sizes, scale in zip(zip(given, wanted, strict=True), scales, strict=True)
        )
        x = t.tensor(a.self, dtype)
        for weights in (columns, rows):
            product = t.emit(relax.op.matmul(x, t.constant(weights.T.contiguous())))
            x = t.emit(relax.op.permute_dims(product, [0, 1, 3, 2]))
        return narrowed(t, a, x, dtype)

    return convert


CONVERTERS: dict[str, Converter] = {
    "aten._upsample_bilinear2d_aa.default": _antialiased(torch.ops.aten._upsample_bilinear2d_aa.default),
    "aten._upsample_bicubic2d_aa.default": _antialiased(torch.ops.aten._upsample_bicubic2d_aa.default),
}


def _is_resizing(name: str) -> bool:
    return (
        name.startswith(("aten.upsample", "aten._upsample", "aten.grid_sampler", "aten.pixel_"))
        and "backward" not in name
    )


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    str(operator): rule
    for operator, rule in decomposition_table.items()
    if isinstance(operator, torch._ops.OpOverload) and _is_resizing(str(operator)) and not str(operator).endswith("out")
}
