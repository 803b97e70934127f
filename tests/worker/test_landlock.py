"""Landlock, in a process that has restricted itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from service.worker.landlock import version
from tests.conftest import ROOT

RESTRICT = """
import ctypes, os
from service.worker.landlock import EXECUTE, READ, WRITE, Rule, restrict
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
restrict([Rule("readable", READ), Rule("slot", WRITE), Rule("missing", READ), Rule("readable/file/below", READ)])
"""


def test_the_kernel_that_runs_the_tests_has_landlock():
    assert version() >= 1


@pytest.mark.parametrize(
    ("code", "works"),
    [
        ("open('readable/file').read()", True),
        ("os.listdir('readable')", True),
        ("open('slot', 'w').write('x')", True),
        ("open('slot', 'r+').truncate(0)", True),
        ("open('secret').read()", False),
        ("os.listdir('.')", False),
        ("open('readable/file', 'w')", False),
        ("open('readable/new', 'w')", False),
        ("os.truncate('readable/file', 0)", False),
        ("os.unlink('readable/file')", False),
        ("os.unlink('slot')", False),
        ("os.rename('slot', 'readable/slot')", False),
        ("os.link('secret', 'readable/secret')", False),
        ("os.execv('/bin/true', ['true'])", False),
    ],
)
def test_only_what_a_rule_grants_can_be_done(tmp_path, code, works):
    (tmp_path / "readable").mkdir()
    for name in ("readable/file", "slot", "secret"):
        (tmp_path / name).write_text("content")
    done = subprocess.run(
        [sys.executable, "-c", RESTRICT + code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if works:
        assert done.returncode == 0, done.stderr
    else:
        assert "Permission denied" in done.stderr or "cross-device" in done.stderr
        assert (tmp_path / "readable/file").read_text() == "content"
