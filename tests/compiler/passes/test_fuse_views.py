"""Attention reads its heads where the projection has written them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

from service.runtime.session import Session
from tests.compiler.conftest import MakeRun, save


class Attention(nn.Module):
    """Three heads of 8; `shown` gives the transposed keys away as well."""

    def __init__(self, *, shown: bool = False) -> None:
        super().__init__()
        self.project, self.shown = nn.Linear(24, 72), shown

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = (part.reshape(2, 7, 3, 8).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        turned = k.transpose(-1, -2)
        weights = torch.softmax((q * (1 / math.sqrt(8))) @ turned, -1)
        result = (weights @ v).transpose(1, 2).reshape(2, 7, 24)
        return (result, turned.contiguous()) if self.shown else (result,)


def compile_and_compare(model: nn.Module, compiled: MakeRun, path: Path) -> dict[str, str]:
    """The kernels by the functions of the last step."""
    x = torch.randn(2, 7, 24)
    run = compiled(save(model, (x,), path), "fast")
    for mine, theirs in zip(Session(run.job.library_path).run([x.numpy()]), model(x), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
    step = next(each for each in reversed(run.steps) if "kernels" in each["details"])
    return {each["function"]: each["kernel"] for each in step["details"]["kernels"]}


def test_no_function_of_views_alone_is_left_before_a_product(compiled: MakeRun, tmp_path: Path) -> None:
    kernels = compile_and_compare(Attention(), compiled, tmp_path / "a.pt2")
    assert sum(kernel == "batched_matmul" for kernel in kernels.values()) == 2
    assert not any("slice" in name or "split" in name for name in kernels)


def test_a_view_that_something_else_reads_stays_for_it(compiled: MakeRun, tmp_path: Path) -> None:
    kernels = compile_and_compare(Attention(shown=True), compiled, tmp_path / "b.pt2")
    assert "elementwise" in kernels.values()
