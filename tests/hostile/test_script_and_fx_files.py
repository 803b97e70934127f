"""Every hostile TorchScript and FX file is refused with a Problem or disarmed, and has no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from service.compiler.importers import fx, torchscript
from service.errors import DamagedModel, ImportFailed, MemoryLimitExceeded, SignatureMismatch, UnsafeModel
from service.nouns import TensorSpec
from tests.compiler.readers.test_pt2 import job_of
from tests.hostile import fx_files, script_files

REFUSALS = (DamagedModel, UnsafeModel, ImportFailed, SignatureMismatch, MemoryLimitExceeded)
SCRIPT_DISARMED = {"debug_pickle", "traced_pickle"}
FX_DISARMED = {"annotation"}
# Runs until its worker's deadline; that it does no more is tried with the gates off.
ENDLESS = {"loop_without_end"}


@pytest.fixture(scope="module")
def script() -> dict[str, bytes]:
    return script_files.honest_files()


def test_there_are_enough_of_them() -> None:
    assert len(script_files.CHANGES) >= 9
    assert len(fx_files.CHANGES) >= 9


def attempt(load: Any, content: bytes, folder: Path, name: str) -> str:
    """``refused`` or ``loaded``, after the model was run."""
    (folder / "upload").write_bytes(content)
    job = job_of(folder / "upload", folder, inputs=(TensorSpec(name, (2, 4), "float32"),))
    try:
        load(job).module()(torch.randn(2, 4))
    except REFUSALS as problem:
        return "refused" if problem.detail.endswith(".") else problem.detail
    except RuntimeError as error:
        # What the model's worker may not have of memory, nobody has.
        if "can't allocate memory" not in str(error):
            raise
        return "refused"
    return "loaded"


@pytest.mark.parametrize("name", sorted(set(script_files.CHANGES) - ENDLESS))
def test_a_hostile_script_has_no_effect(name: str, script: dict[str, bytes], tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    content = script_files.hostile_script(name, script, marker)
    outcome = attempt(torchscript.load_program, content, tmp_path, "input")
    assert outcome == ("loaded" if name in SCRIPT_DISARMED else "refused")
    assert not marker.exists()


@pytest.mark.parametrize("name", fx_files.CHANGES)
def test_a_hostile_fx_file_has_no_effect(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    outcome = attempt(fx.load_program, fx_files.CHANGES[name](marker), tmp_path, "x")
    assert outcome == ("loaded" if name in FX_DISARMED else "refused")
    assert not marker.exists()


def test_the_honest_ones_load(script: dict[str, bytes], tmp_path: Path) -> None:
    assert attempt(torchscript.load_program, script_files.pack(script), tmp_path, "input") == "loaded"
    assert attempt(fx.load_program, fx_files.saved(), tmp_path, "x") == "loaded"


def test_plain_torch_is_taken_in_by_them(script: dict[str, bytes], tmp_path: Path) -> None:
    """The files are real: the loaders that relaxd does not use act on them."""
    marker = tmp_path / "marker"
    for name in ("set_state", "from_file"):
        (tmp_path / "m.pt").write_bytes(script_files.hostile_script(name, script, marker))
        torch.jit.load(tmp_path / "m.pt")(torch.ones(4))
        assert marker.exists(), name
        marker.unlink()
    for name in ("imports_code", "pickled_object"):
        (tmp_path / "m.pt").write_bytes(fx_files.CHANGES[name](marker))
        torch.load(tmp_path / "m.pt", weights_only=False)
        assert marker.exists(), name
        marker.unlink()
