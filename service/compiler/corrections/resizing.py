"""Resizing, as reads and sums: linear ones as eager's kernel has it, the others by PyTorch's own decompositions.

TVM's `image.resize2d` takes other neighbours at ratios that are not whole, another cubic coefficient, and has no
antialiasing like PyTorch's. PyTorch's decomposition of linear resizing makes infinite what eager does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decomposition_table
from tvm import te, tirx

from service.compiler.promotion import narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed


def _windows(sizes: tuple[int, int], cubic: bool, align: bool, scale: float | None, dtype: torch.dtype) -> torch.Tensor:
    """(out, 2) int64: the first element and the number of elements that each element of the result is made of."""
    given, wanted = sizes
    if align:
        ratio = (given - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        ratio = 1.0 / scale if scale is not None and scale > 0 else given / wanted
    # As in ATen's _compute_indices_min_size_weights_aa, in the dtype that it computes in.
    step = torch.tensor(ratio, dtype=dtype)
    support = (2.0 if cubic else 1.0) * step.clamp(min=1.0)
    centre = (step.double() * (torch.arange(wanted) + 0.5)).to(dtype)
    first = ((centre - support).double() + 0.5).to(torch.int64).clamp(min=0)
    last = ((centre + support).double() + 0.5).to(torch.int64).clamp(max=given)
    return torch.stack([first, last - first], 1)


def _axis_weights(
    operator: Any, sizes: tuple[int, int], align: bool, scale: float | None, dtype: torch.dtype
) -> torch.Tensor:
    """(out, in) of `dtype`: what each element of one axis gets of each other. Resizing is linear, so eager says it."""
    given, wanted = sizes
    # Two columns: of images one column wide, eager resizes only the first row.
    image = torch.eye(given, dtype=dtype).reshape(1, given, given, 1).repeat(1, 1, 1, 2)
    resized: torch.Tensor = operator(image, [wanted, 2], align, scale, None)
    return resized[0, :, :, 0].T.contiguous()


def _antialiased(operator: Any, cubic: bool) -> Converter:
    """Sums over windows, columns first, with weights that eager computes now."""

    def convert(t: Translation, a: Arguments) -> Any:
        value = a.self.meta["val"]
        given, wanted = value.shape[2:], a.result.shape[2:]
        if any(not isinstance(size, int) for size in (*given, *wanted)):
            raise ImportFailed("antialiased resizing is compiled for images of fixed size.", step=0)
        dtype = widened(value.dtype)
        x = t.tensor(a.self, dtype)
        for axis, scale in ((3, a.scales_w), (2, a.scales_h)):
            sizes = given[axis - 2], wanted[axis - 2]
            weights = _axis_weights(operator, sizes, a.align_corners, scale, dtype)
            windows = _windows(sizes, cubic, a.align_corners, scale, dtype)
            x = _summed(t, x, axis, weights, windows)
        return narrowed(t, a, x, dtype)

    return convert


def _summed(t: Translation, x: Any, axis: int, weights: torch.Tensor, windows: torch.Tensor) -> Any:
    """What is outside of a window is not read: times 0 it would still be NaN where it is not finite."""
    longest = int(windows[:, 1].max())

    def compute(data: Any, table: Any, bounds: Any) -> Any:
        k = te.reduce_axis((0, longest), name="k")
        shape = [table.shape[0] if at == axis else size for at, size in enumerate(data.shape)]

        def body(*i: Any) -> Any:
            place = bounds(i[axis], 0) + k
            inside = tirx.And(k < bounds(i[axis], 1), place < table.shape[1])
            term = data(*[place if at == axis else each for at, each in enumerate(i)]) * table(i[axis], place)
            return te.sum(tirx.if_then_else(inside, term, tirx.const(0, data.dtype)), axis=k)

        return te.compute(shape, body, name="resize")

    return t.te(compute, x, t.constant(weights), t.constant(windows), name="resize")


@dataclass(frozen=True)
class _Axis:
    """For each place of the result along one axis: its two neighbours and their weights."""

    near: torch.Tensor
    far: torch.Tensor
    near_weight: torch.Tensor
    far_weight: torch.Tensor


def _axis(given: Any, wanted: Any, align: bool, factor: float | None, dtype: torch.dtype) -> _Axis:
    """As ATen's compute_source_index_and_lambda."""
    places = torch.arange(wanted)
    if given is wanted or (isinstance(given, int) and given == wanted):
        ones = torch.ones(wanted, dtype=dtype)
        return _Axis(places, places, ones, torch.zeros(wanted, dtype=dtype))
    if align:
        source = places.to(dtype) * ((given - 1) / (wanted - 1) if wanted > 1 else 0.0)
    else:
        ratio = 1.0 / factor if factor is not None and factor > 0 else given / wanted
        source = ((places.to(dtype) + 0.5) * ratio - 0.5).clamp(min=0.0)
    near = source.to(torch.int64).clamp(max=given - 1)
    weight = (source - near.to(dtype)).clamp(0.0, 1.0)
    return _Axis(near, (near + 1).clamp(max=given - 1), 1.0 - weight, weight)


def _linear(x: torch.Tensor, size: Sequence[Any], align: bool, factors: Sequence[float | None]) -> torch.Tensor:
    """x, (batch, channels, …), resized along all further axes: weighted sums of sums, the first axis outermost."""
    dtype = widened(x.dtype)
    rank = x.ndim - 2
    axes = [_axis(x.shape[2 + at], size[at], align, factors[at], dtype) for at in range(rank)]

    def weighted(at: int, chosen: list[torch.Tensor]) -> torch.Tensor:
        if at == rank:
            where = [index.reshape([-1 if own == k else 1 for k in range(rank)]) for own, index in enumerate(chosen)]
            return torch.ops.aten._unsafe_index.Tensor(x, [None, None, *where]).to(dtype)
        axis, form = axes[at], [-1 if k == at else 1 for k in range(rank)]
        near = weighted(at + 1, [*chosen, axis.near]) * axis.near_weight.reshape(form)
        return near + weighted(at + 1, [*chosen, axis.far]) * axis.far_weight.reshape(form)

    return weighted(0, []).to(x.dtype)


def _linear_to_size(x: torch.Tensor, output_size: Any, align_corners: bool, *scales: float | None) -> torch.Tensor:
    return _linear(x, output_size, align_corners, [*scales, *[None] * (x.ndim - 2 - len(scales))])


def _linear_by_factor(x: torch.Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> torch.Tensor:
    if scale_factors is None:
        return _linear(x, output_size, align_corners, [None] * (x.ndim - 2))
    return _linear(x, _scaled(x, scale_factors), align_corners, scale_factors)


def _scaled(x: torch.Tensor, factors: Sequence[float]) -> list[Any]:
    return [
        given * int(factor) if float(factor).is_integer() else math.trunc(given * factor)
        for given, factor in zip(x.shape[2:], factors, strict=True)
    ]


def _nearest_places(given: Any, wanted: Any, factor: float | None, shift: float) -> torch.Tensor:
    """As ATen's nearest_neighbor_compute_source_index; `shift` is 0.5 where it is exact."""
    ratio = 1.0 / factor if factor is not None and factor > 0 else given / wanted
    return ((torch.arange(wanted).to(torch.float32) + shift) * ratio).floor().to(torch.int64).clamp(max=given - 1)


def _nearest(x: torch.Tensor, size: Sequence[Any], factors: Sequence[float | None], shift: float) -> torch.Tensor:
    rank = x.ndim - 2
    where = []
    for at in range(rank):
        index = _nearest_places(x.shape[2 + at], size[at], factors[at], shift)
        where.append(index.reshape([-1 if k == at else 1 for k in range(rank)]))
    return torch.ops.aten._unsafe_index.Tensor(x, [None, None, *where])


def _nearest_read(shift: float) -> Converter:
    """For the overloads that PyTorch does not decompose, which TorchScript's traces have."""

    def convert(t: Translation, a: Arguments) -> Any:
        given, wanted = a.self.meta["val"].shape[2:], a.result.shape[2:]
        if any(not isinstance(size, int) for size in (*given, *wanted)):
            raise ImportFailed("this resizing is compiled for images of fixed size.", step=0)
        names = ("scales",) if len(wanted) == 1 else ("scales_d", "scales_h", "scales_w")[-len(wanted) :]
        axes = zip(given, wanted, [a.values.get(name) for name in names], strict=True)
        tables = [t.constant(_nearest_places(*axis, shift)) for axis in axes]

        def compute(data: Any, *places: Any) -> Any:
            def read(*i: Any) -> Any:
                return data(*i[:2], *[place(each) for place, each in zip(places, i[2:], strict=True)])

            return te.compute([*data.shape[:2], *[place.shape[0] for place in places]], read, name="resize")

        return t.te(compute, t.tensor(a.self), *tables, name="resize")

    return convert


def _nearest_rule(shift: float) -> Callable[..., torch.Tensor]:
    def resize(x: torch.Tensor, output_size: Any, scale_factors: Any) -> torch.Tensor:
        if scale_factors is None:
            return _nearest(x, output_size, [None] * (x.ndim - 2), shift)
        return _nearest(x, _scaled(x, scale_factors), scale_factors, shift)

    return resize


CONVERTERS: dict[str, Converter] = {
    "aten._upsample_bilinear2d_aa.default": _antialiased(torch.ops.aten._upsample_bilinear2d_aa.default, cubic=False),
    "aten._upsample_bicubic2d_aa.default": _antialiased(torch.ops.aten._upsample_bicubic2d_aa.default, cubic=True),
    **{
        f"aten.{kind}{rank}d.default": _nearest_read(shift)
        for kind, shift in (("upsample_nearest", 0.0), ("_upsample_nearest_exact", 0.5))
        for rank in (1, 2, 3)
    },
}


def _is_resizing(name: str) -> bool:
    return name.startswith(("aten.upsample", "aten._upsample", "aten.pixel_")) and "backward" not in name


DECOMPOSITIONS: dict[str, Callable[..., Any]] = (
    {
        str(operator): rule
        for operator, rule in decomposition_table.items()
        if isinstance(operator, torch._ops.OpOverload)
        and _is_resizing(str(operator))
        and not str(operator).endswith("out")
        and str(operator) not in CONVERTERS
    }
    | {
        f"aten.upsample_{name}.{overload}": rule
        for name in ("linear1d", "bilinear2d", "trilinear3d")
        for overload, rule in (("default", _linear_to_size), ("vec", _linear_by_factor))
    }
    | {
        f"aten.{kind}{rank}d.vec": _nearest_rule(shift)
        for kind, shift in (("upsample_nearest", 0.0), ("_upsample_nearest_exact", 0.5))
        for rank in (1, 2, 3)
    }
)
