"""Maps that move into the function before them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from service.compiler.compile import compile_model
from tests.compiler.conftest import MakeRun, save


class Twice(nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (x @ w + a) * 2 + b


def test_a_function_that_is_called_twice_keeps_its_operands_apart(make_run: MakeRun, tmp_path: Path) -> None:
    inputs = (torch.randn(4, 8), torch.randn(8, 6), torch.randn(4, 6), torch.randn(4, 6))
    path = save(Twice(), inputs, tmp_path / "given.pt2")
    for passes in (["legalize_ops", "fuse_epilogues"], ["legalize_ops", "fuse_epilogues", "schedule"]):
        run = make_run(path, passes, verify="every_step")
        compile_model(run.job, run.emit)
        assert all(each["passed"] for step in run.steps for each in step["details"]["numbers"]["outputs"])
        assert run.steps[2]["ops"]["call_tir"] == 1


def test_a_convolution_takes_its_bias_and_its_normalisation(make_run: MakeRun, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    run = make_run(save(model, (torch.randn(1, 3, 6, 6),), tmp_path / "given.pt2"), ["legalize_ops", "fuse_epilogues"])
    compile_model(run.job, run.emit)
    assert run.end["verification"]["passed"]
