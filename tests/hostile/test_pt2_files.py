"""Every hostile `.pt2` is refused with a Problem or disarmed, and has no effect."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from service.compiler.importers.exported_program import load_program
from service.compiler.importers.program import import_program
from service.errors import DamagedModel, ImportFailed, UnsafeModel
from tests.compiler.readers.test_pt2 import job_of
from tests.hostile.pt2_files import CHANGES, Files, honest_files, hostile_pt2, pack

# What is left of these is an honest model: the hostile part does not reach PyTorch.
DISARMED = {
    "guards", "sample_inputs", "sample_inputs_bare", "metadata_stack", "metadata_source", "metadata_custom",
    "metadata_modules", "tree_module",
}  # fmt: skip
# Well formed, but no program: that shows when its operators are taken apart.
REFUSED_LATER = {"input_of_a_petabyte"}


@pytest.fixture(scope="module")
def files() -> Files:
    return honest_files()


def test_there_are_enough_of_them() -> None:
    assert len(CHANGES) >= 25


def call(program: Any) -> Any:
    return program.module()(torch.randn(2, 4), scale=torch.tensor(2.0))


@pytest.mark.parametrize("name", CHANGES)
def test_a_hostile_pt2_has_no_effect(name: str, files: Files, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = tmp_path / "m.pt2"
    path.write_bytes(hostile_pt2(name, files, marker))
    program, problem = None, None
    try:
        program = load_program(job_of(path, tmp_path))
        if name in REFUSED_LATER:
            import_program(program, job_of(path, tmp_path))
    except (DamagedModel, UnsafeModel, ImportFailed) as raised:
        program, problem = None, raised
    if program is not None:
        call(program)
    assert (program is not None) == (name in DISARMED), problem
    # PyTorch's own words end with the lines of the model.
    assert problem is None or name in REFUSED_LATER or problem.detail.endswith(".")
    assert not marker.exists()
    assert "tests.hostile.landmine" not in sys.modules


def test_the_honest_one_loads(files: Files, tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(pack(files))
    assert call(load_program(job_of(tmp_path / "m.pt2", tmp_path)))["out"].shape == (2, 3)


def test_plain_torch_runs_code_from_some_of_them(files: Files, tmp_path: Path) -> None:
    """The files are real: the loader that relaxd does not use is taken in by them."""
    marker = tmp_path / "marker"
    for name in ("pickled_weight", "legacy_weights", "opaque_object"):
        (tmp_path / "m.pt2").write_bytes(hostile_pt2(name, files, marker))
        with contextlib.suppress(Exception):  # whatever it then makes of the rest
            torch.export.load(tmp_path / "m.pt2")
        assert marker.exists(), name
        marker.unlink()
