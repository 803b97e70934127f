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


def test_an_activation_between_reshapes_moves_into_the_product(make_run: MakeRun, tmp_path: Path) -> None:
    model = nn.TransformerEncoderLayer(32, 2, 64, 0.0, "gelu", batch_first=True)
    path = save(model.eval(), (torch.randn(1, 19, 32),), tmp_path / "given.pt2")
    run = make_run(path, ["fast"], verify="every_step")
    compile_model(run.job, run.emit)
    assert run.end["verification"]["passed"]
    kernels = {each["function"]: each["kernel"] for each in run.steps[-1]["details"]["kernels"]}
    assert [kernel for name, kernel in kernels.items() if "gelu" in name] == ["dense"]
