"""Networks over sequences by `fast`: their convolutions are those of images, and eager's answers stay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.compiler.conftest import MakeRun


def network(name):
    torch.manual_seed(3)
    return {
        "chain": nn.Sequential(
            nn.Conv1d(6, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 24, 3, 2, padding=1), nn.GELU(),
            nn.Conv1d(24, 8, 3, dilation=2),
        ),
        "groups": nn.Sequential(nn.Conv1d(6, 6, 3, groups=6), nn.Conv1d(6, 12, 3, groups=3), nn.Sigmoid()),
        "pooled": nn.Sequential(nn.Conv1d(6, 9, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(9, 5, 1)),
        "transposed": nn.Sequential(nn.ConvTranspose1d(6, 8, 4, 2, 1), nn.Tanh(), nn.Conv1d(8, 3, 7, padding=3)),
    }[name].eval()  # fmt: skip


def kernels(run):
    step = next(step for step in run.steps if step["pass"] == "schedule")
    return [entry["kernel"] for entry in step["details"]["kernels"] if "conv" in entry["function"]]


def exported(tmp_path, module, length, dynamic_shapes):
    file = tmp_path / "upload.pt2"
    program = torch.export.export(module, (torch.randn(2, 6, length),), dynamic_shapes=dynamic_shapes)
    torch.export.save(program, file)
    return str(file)


@pytest.mark.parametrize("name", ["chain", "groups", "pooled", "transposed"])
@pytest.mark.parametrize("batch", [None, "batch"])
def test_a_network_over_sequences(compiled: MakeRun, tmp_path, name, batch):
    shapes = None if batch is None else ({0: torch.export.Dim(batch, min=1, max=64)},)
    run = compiled(exported(tmp_path, network(name), 40, shapes), "fast")
    assert run.end["verification"]["passed"]
    assert "columns" not in [kernel for kernel in kernels(run) if name != "groups"]
    assert "convolution" in kernels(run)


def test_a_length_that_is_not_known(compiled: MakeRun, tmp_path):
    shapes = ({2: torch.export.Dim("length", min=16, max=512)},)
    run = compiled(exported(tmp_path, network("chain"), 40, shapes), "fast")
    assert run.end["verification"]["passed"]
