"""Models in every dtype, by every preset: what one kernel cannot do falls back, and is never wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  PyTorch's own habit
from torch import nn

from service.compiler.compile import compile_model
from service.compiler.recipes import load_catalogue
from tests.compiler.conftest import MakeRun, save


class Function(nn.Module):
    def __init__(self, compute: Any) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.compute(*values)


def dense(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.ELU(), nn.Linear(16, 3))
    return layers.to(dtype), (torch.randn(3, 8).to(dtype),)


def image(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return layers.to(dtype), (torch.randn(2, 3, 8, 8).to(dtype),)


def encoder(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    return layer.to(dtype), (torch.randn(2, 5, 16).to(dtype),)


def whole(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    values = tuple(torch.randint(0, 5, (4, 6)).to(dtype) for _ in range(2))
    return Function(lambda x, y: (x * y + 3).sum(0)), values


def casting(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Function(lambda x: F.softmax(x.to(dtype) @ x.to(dtype).T, -1).float() * 2), (torch.randn(6, 7),)


FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
CASES = [(make, dtype) for make in (dense, image, encoder, casting) for dtype in FLOATS]
CASES += [(whole, dtype) for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)]


@pytest.mark.parametrize(("make", "dtype"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_preset_is_right_in_every_dtype(make: Any, dtype: torch.dtype, make_run: MakeRun, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, inputs = make(dtype)
    path = save(module, inputs, tmp_path / "given.pt2")
    for recipe in load_catalogue().recipes:
        run = make_run(path, recipe)
        compile_model(run.job, run.emit)
        assert run.end["verification"]["passed"], recipe
        assert run.end["manifest"]["verification"]["tolerances"]
