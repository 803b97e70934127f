"""The preflight, in this process."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from service.compiler.inspecting import decomposable_operators, inspect_model, supported_operators
from tests.compiler.conftest import MakeRun, save
from tests.hostile.pt2_files import honest_files, pack, program


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.out = nn.Linear(6, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(self.out(self.embed(tokens)))


def test_weights_that_are_tied_count_once(make_run: MakeRun, tmp_path: Path) -> None:
    report = inspect_model(make_run(save(Tied(), (torch.tensor([1, 2]),), tmp_path / "m.pt2")).job)
    assert report["parameters"] == {"count": 60, "bytes": 240}


def test_operators_that_cannot_be_loaded_are_reported(make_run: MakeRun, tmp_path: Path) -> None:
    def edit(value: dict) -> None:
        value["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.mine.run.default"

    (tmp_path / "m.pt2").write_bytes(pack(program(honest_files(), edit)))
    report = inspect_model(make_run(str(tmp_path / "m.pt2")).job)
    assert report["signature"] is None
    assert report["unsupported"][0]["operator"] == "mine.run.default"
    assert "custom operator" in report["unsupported"][0]["hint"]
    assert {"name": "mine.run.default", "count": 1} in report["operators"]
    assert sum(each["count"] for each in report["operators"]) > 1


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total.clone()


def test_a_buffer_that_the_model_changes_is_reported_with_its_line(make_run: MakeRun, tmp_path: Path) -> None:
    (entry,) = inspect_model(make_run(save(Counts(), (torch.ones(3),), tmp_path / "m.pt2")).job)["unsupported"]
    assert entry["operator"] == "change of the buffer 'total'"
    assert "self.total.add_(x)" in entry["source_line"]
    assert "state" in entry["hint"]


def test_the_lists_of_operators_do_not_overlap() -> None:
    assert "aten.add.Tensor" in supported_operators()
    assert not set(supported_operators()) & set(decomposable_operators())
