"""Archives that lie, around models of each format; and all hostile files with the gates off, in the sandbox alone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from service import formats
from service.compiler.importers import find_importer
from service.errors import Problem
from service.nouns import ModelFormat, TensorSpec
from tests.compiler.readers.test_pt2 import job_of
from tests.hostile import fx_files, pt2_files, script_files
from tests.hostile.archives import LIES
from tests.hostile.mutations import unpack

# Python says it of any text that is parsed as code.
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")

ROOT = Path(__file__).parents[2]
FORMATS = ("exported_program", "torchscript", "fx")
# What is wrong with these does not matter to a reader of zip archives: the model is an honest one.
HARMLESS = {"a program before it", "a gzip file", "more entries than there are", "fewer entries than there are"}
SECONDS = 20.0


@pytest.fixture(scope="module")
def honest() -> dict[str, dict[str, bytes]]:
    return {
        "exported_program": pt2_files.honest_files(),
        "torchscript": script_files.honest_files(),
        "fx": unpack(fx_files.saved()),
    }


def test_there_are_enough_of_them() -> None:
    assert len(pt2_files.CHANGES) + len(script_files.CHANGES) + len(fx_files.CHANGES) + len(LIES) >= 60 + 30


@pytest.mark.parametrize("model_format", FORMATS)
@pytest.mark.parametrize("name", LIES)
def test_an_archive_that_lies_is_refused_with_a_code_and_a_sentence(
    name: str, model_format: str, honest: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    path = tmp_path / "m"
    path.write_bytes(LIES[name](honest[model_format]))
    inputs = None if model_format == "exported_program" else (TensorSpec("input", (2, 4), "float32"),)
    inputs = (TensorSpec("x", (2, 4), "float32"),) if model_format == "fx" else inputs
    start = time.monotonic()
    problems: list[Problem | None] = []
    for attempt in (
        lambda: formats.recognise(path, None),
        lambda: formats.recognise(path, ModelFormat(model_format)),
        lambda: find_importer(ModelFormat(model_format)).load_program(job_of(path, tmp_path, inputs=inputs)),
    ):
        try:
            attempt()
        except Problem as problem:
            problems.append(problem)
        else:
            problems.append(None)
    assert time.monotonic() - start < SECONDS
    assert (problems[-1] is None) == (name in HARMLESS), problems[-1]
    for problem in problems:
        assert problem is None or (problem.slug and problem.status < 500 and problem.detail.endswith(".")), problem
    assert not Path("/tmp/relaxd-harm").exists()
    assert {entry.name for entry in tmp_path.iterdir()} <= {"m", "model.pt2", "model.pt"}


def everything(honest: dict[str, dict[str, bytes]], folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Name, format and content of all hostile files; their markers are in `folder`."""
    marker = folder / "marker"
    for name in pt2_files.CHANGES:
        yield name, "exported_program", pt2_files.hostile_pt2(name, honest["exported_program"], marker)
    for name in script_files.CHANGES:
        yield name, "torchscript", script_files.hostile_script(name, honest["torchscript"], marker)
    for name, make in fx_files.CHANGES.items():
        yield name, "fx", make(marker)
    for name, lie in LIES.items():
        yield name, "exported_program", lie(honest["exported_program"])


def test_with_the_gates_off_the_sandbox_alone_lets_nothing_happen(honest: dict[str, Any], tmp_path: Path) -> None:
    files = list(everything(honest, tmp_path))
    assert len(files) >= 60
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.gates_off"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ends: Counter[str] = Counter()
    for number, (name, model_format, content) in enumerate(files):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "model").write_bytes(content)
        (folder / "slot").touch()
        process.stdin.write(f"{model_format} {folder}\n")
        process.stdin.flush()
        result = json.loads(process.stdout.readline())
        assert result["status"] not in (None, 77), (name, result)
        assert result["seconds"] < 60, (name, result)
        assert result["left"] == ["model", "slot"], (name, result)
        assert (folder / "slot").stat().st_size == 0, name
        assert not (tmp_path / "marker").exists(), name
        ends["loaded" if result["status"] == 0 else "refused" if result["status"] > 0 else "killed"] += 1
        (folder / "model").unlink()
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()
    assert not Path("/tmp/relaxd-harm").exists()
    # The loaders were really asked: they load some of them, and what some of them do kills.
    assert ends["loaded"] > 5, ends
    assert ends["refused"] > 50, ends


def test_the_files_do_harm_where_there_is_no_sandbox(honest: dict[str, Any], tmp_path: Path) -> None:
    """Or else the test above would show nothing."""
    marker, path = tmp_path / "marker", tmp_path / "m"
    taken_in = 0
    for name in ("pickled_object", "imports_code", "pickled_layer", "pickled_parameter"):
        path.write_bytes(fx_files.CHANGES[name](marker))
        with contextlib.suppress(Exception):  # whatever it then makes of the rest
            torch.load(path, weights_only=False)
        taken_in += marker.exists()
        marker.unlink(missing_ok=True)
    assert taken_in >= 3
