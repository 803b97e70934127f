"""Sampling at places that are data (grid_sample), as eager's kernels do it, NaN and infinite places included.

TVM's `image.grid_sample` rounds and pads otherwise. PyTorch's own decomposition takes 0 for what lies at NaN, and has
none in three dimensions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from service.compiler.translation import Converter

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
# Of the cubic convolution that PyTorch samples with.
_CUBIC = -0.75

CONVERTERS: dict[str, Converter] = {}


def _unnormalised(place: torch.Tensor, size: Any, align: bool) -> torch.Tensor:
    """From -1 … 1 to the numbers of pixels, rounded at each step as eager's two kernels do."""
    if place.ndim == 4:
        return (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
    return (place + 1) * ((size - 1) / 2) if align else (place + 1) * (size / 2) - 0.5


def _clipped(place: torch.Tensor, size: Any) -> torch.Tensor:
    """Within the image; NaN is its first pixel, in three dimensions its last."""
    nan = torch.full_like(place, size - 1) if place.ndim == 4 else torch.zeros_like(place)
    return torch.where(torch.isnan(place), nan, place).clamp(0, size - 1)


def _reflected(place: torch.Tensor, size: Any, align: bool) -> torch.Tensor:
    low, span = (0.0, size - 1) if align else (-0.5, size)
    if isinstance(span, int) and span == 0:
        return torch.zeros_like(place)
    distance = (place - low).abs()
    flips = (distance / span).floor()
    extra = torch.fmod(distance, span) if place.ndim == 4 else distance - flips * span
    odd = flips - (flips / 2).floor() * 2 != 0
    return _clipped(torch.where(odd, span - extra + low, extra + low), size)


def _padded(place: torch.Tensor, size: Any, padding: int, align: bool) -> torch.Tensor:
    if padding == _BORDER:
        return _clipped(place, size)
    return _reflected(place, size, align) if padding == _REFLECTION else place


def _read(x: torch.Tensor, places: list[torch.Tensor], weight: torch.Tensor | None = None) -> torch.Tensor:
    """The pixels at whole `places`, each (batch, …), times `weight`; 0 outside, and where a place is NaN.

    In two dimensions eager multiplies the 0 by the weight, NaN or not; in three it leaves out what is outside.
    """
    sizes = x.shape[2:]
    inside = torch.ones_like(places[0], dtype=torch.bool)
    whole = []
    for place, size in zip(places, sizes, strict=True):
        within = (place > -1) & (place < size)
        inside = inside & within
        whole.append(torch.where(within, place, torch.zeros_like(place)).to(torch.int64))
    form = [1] * (places[0].ndim - 1)
    batch = torch.arange(x.shape[0]).reshape(-1, 1, *form)
    channel = torch.arange(x.shape[1]).reshape(1, -1, *form)
    found = torch.ops.aten._unsafe_index.Tensor(x, [batch, channel, *[each.unsqueeze(1) for each in whole]])
    if weight is not None and len(sizes) == 3:
        found = found * weight.unsqueeze(1)
    found = torch.where(inside.unsqueeze(1), found, torch.zeros_like(found))
    return found if weight is None or len(sizes) == 3 else found * weight.unsqueeze(1)


def _in_16_bits(place: torch.Tensor) -> torch.Tensor:
    """A whole place as eager's kernel for halves has it: what 16 bits cannot hold wraps around, NaN is 0."""
    finite = torch.where(place.abs() < 1 << 30, place, torch.zeros_like(place)).to(torch.int64)
    return ((finite + 32768) % 65536 - 32768).to(torch.float32)


def _cubic_weights(t: torch.Tensor) -> list[torch.Tensor]:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1

    def outer(x: torch.Tensor) -> torch.Tensor:
        return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]


def _bicubic(x: torch.Tensor, places: list[torch.Tensor], padding: int, align: bool) -> torch.Tensor:
    """`places` are (rows, columns); each of the sixteen neighbours is padded by itself."""
    floors = [place.floor() for place in places]
    weights = [_cubic_weights(place - floor) for place, floor in zip(places, floors, strict=True)]
    total: Any = 0
    for i in range(4):
        row = _padded(floors[0] + (i - 1), x.shape[2], padding, align)
        line: Any = 0
        for j in range(4):
            column = _padded(floors[1] + (j - 1), x.shape[3], padding, align)
            line = line + _read(x, [row, column], weights[1][j])
        total = total + line * weights[0][i].unsqueeze(1)
    return total


def _linear(x: torch.Tensor, places: list[torch.Tensor]) -> torch.Tensor:
    lows = [place.floor() for place in places]
    total: Any = 0
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight: Any = 1
        for place, low, high in reversed(list(zip(places, lows, corner, strict=True))):
            weight = weight * (place - low if high else (low + 1) - place)
        at = [low + high for low, high in zip(lows, corner, strict=True)]
        total = total + _read(x, at, weight)
    return total


def _sampled(
    x: torch.Tensor, grid: torch.Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> torch.Tensor:
    """`grid` (batch, …, rank) has the last axis of the image first."""
    sizes = x.shape[2:]
    rank = len(sizes)
    places = [_unnormalised(grid[..., rank - 1 - at], sizes[at], align_corners) for at in range(rank)]
    if interpolation_mode == _BICUBIC:
        return _bicubic(x, places, padding_mode, align_corners)
    places = [_padded(place, size, padding_mode, align_corners) for place, size in zip(places, sizes, strict=True)]
    if interpolation_mode == _NEAREST:
        rounded = [place.round() for place in places]
        return _read(x, [_in_16_bits(place) for place in rounded] if rank == 2 and x.itemsize == 2 else rounded)
    return _linear(x, places)


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten.grid_sampler_2d.default": _sampled,
    "aten.grid_sampler_3d.default": _sampled,
}
