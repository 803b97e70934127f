"""What a model may have: at each limit it is taken, one more and it is refused by a sentence that names the setting."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from service.compiler.importers import exported_program, fx, torchscript
from service.compiler.importers.program import import_program
from service.errors import ImportFailed, UnsafeModel
from service.nouns import Limits, TensorSpec
from tests.compiler.readers.test_pt2 import job_of
from tests.hostile import fx_files, pt2_files, script_files


class Chain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))))


@pytest.fixture
def program() -> torch.export.ExportedProgram:
    return torch.export.export(Chain().eval(), (torch.ones(2, 4),))


def limited(**changes: int) -> Limits:
    return dataclasses.replace(Limits(), **changes)


def counts(program: torch.export.ExportedProgram) -> dict[str, int]:
    tensors = list(program.state_dict.values())
    return {
        "nodes": len(program.graph.nodes),
        "parameters": len(tensors),
        "constant_bytes": sum(tensor.nbytes for tensor in tensors),
    }


@pytest.mark.parametrize("limit", ["nodes", "parameters", "constant_bytes"])
def test_a_program_at_a_limit_is_imported_and_beyond_it_refused(
    program: torch.export.ExportedProgram, limit: str, tmp_path: Path
) -> None:
    count = counts(program)[limit]
    for allowed in (count, count + 1):
        assert (
            import_program(program, job_of(tmp_path, tmp_path, limits=limited(**{limit: allowed}))).module is not None
        )
    with pytest.raises(ImportFailed, match=f"at most {count - 1} .*RELAXD_{limit.upper()}") as raised:
        import_program(program, job_of(tmp_path, tmp_path, limits=limited(**{limit: count - 1})))
    assert raised.value.extensions["limit"] == count - 1


def test_the_readers_count_nodes_before_pytorch_sees_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(pt2_files.pack(pt2_files.honest_files()))
    # A linear, a product and a sum.
    for allowed, taken in ((4, True), (3, True), (2, False)):
        job = job_of(path, tmp_path, limits=limited(nodes=allowed))
        assert _is_taken(exported_program.load_program, job) is taken
    path.write_bytes(fx_files.saved())
    spec = (TensorSpec("x", (2, 4), "float32"),)
    for allowed, taken in ((4, True), (3, False)):
        job = job_of(path, tmp_path, inputs=spec, limits=limited(nodes=allowed))
        assert _is_taken(fx.load_program, job) is taken


def _is_taken(load: Any, job: Any) -> bool:
    try:
        load(job)
    except ImportFailed as problem:
        return "RELAXD_NODES" not in problem.detail
    return True


@pytest.mark.parametrize("model_format", ["pt2", "torchscript", "fx"])
def test_what_an_archive_unpacks_to_is_limited(model_format: str, tmp_path: Path) -> None:
    path = tmp_path / "m"
    load, content, inputs = {
        "pt2": (exported_program.load_program, pt2_files.pack(pt2_files.honest_files()), None),
        "torchscript": (
            torchscript.load_program,
            script_files.pack(script_files.honest_files()),
            (TensorSpec("input", (2, 4), "float32"),),
        ),
        "fx": (fx.load_program, fx_files.saved(), (TensorSpec("x", (2, 4), "float32"),)),
    }[model_format]
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    for allowed in (unpacked, unpacked + 1):
        load(job_of(path, tmp_path, inputs=inputs, limits=limited(unpacked_bytes=allowed)))
    with pytest.raises(UnsafeModel, match=f"unpacks to {unpacked} bytes"):
        load(job_of(path, tmp_path, inputs=inputs, limits=limited(unpacked_bytes=unpacked - 1)))
