"""Distances and bilinear forms, of simpler operators. TVM has no conversion for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from service.compiler.translation import Converter

CONVERTERS: dict[str, Converter] = {}


def _distances(x1: torch.Tensor, x2: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return torch.linalg.vector_norm(difference, p, dim=-1)


def _distances_of_pairs(x: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1)
    return torch.linalg.vector_norm(x[first] - x[second], p, dim=-1)


def _trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    factors = []
    for factor, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        expanded = factor
        for axis in axes:
            expanded = expanded.unsqueeze(axis)
        factors.append(expanded)
    return (factors[0] * factors[1] * factors[2]).sum(sumdim)


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten._cdist_forward.default": _distances,
    "aten._pdist_forward.default": _distances_of_pairs,
    "aten._trilinear.default": _trilinear,
}
