"""Networks over volumes by `fast`: their convolutions are those of images, and eager's answers stay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.compiler.conftest import MakeRun

LAYERS = {
    "chain": lambda: nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.Conv3d(8, 4, 3, 2, 1)
    ),
    "flat and deep": lambda: nn.Sequential(nn.Conv3d(3, 6, (1, 3, 3)), nn.GELU(), nn.Conv3d(6, 5, (3, 1, 1))),
    "dilated": lambda: nn.Conv3d(3, 8, 3, (1, 2, 1), (2, 1, 0), (2, 1, 3)),
    "groups": lambda: nn.Conv3d(3, 6, 3, groups=3),
}


@pytest.mark.parametrize("batch", [None, "batch"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_network_over_volumes(compiled: MakeRun, tmp_path, name, batch):
    torch.manual_seed(5)
    shapes = None if batch is None else ({0: torch.export.Dim(batch, min=1, max=16)},)
    program = torch.export.export(LAYERS[name]().eval(), (torch.randn(2, 3, 7, 9, 8),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "upload.pt2")
    run = compiled(str(tmp_path / "upload.pt2"), "fast")
    assert run.end["verification"]["passed"]
    step = next(step for step in run.steps if step["pass"] == "schedule")
    kernels = {entry["kernel"] for entry in step["details"]["kernels"] if "conv" in entry["function"]}
    assert kernels == ({"convolution"} if name != "groups" else {"columns"})
