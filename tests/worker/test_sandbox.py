"""What a worker gives up, tried from inside a process that has given it up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from service.nouns import REQUIRED_LAYERS
from service.worker.sandbox import missing
from tests.conftest import ROOT, wait_until

CONFINED = """
import os, sys
from service.nouns import Confinement
from service.worker.sandbox import confine
LAYERS = confine("compile", Confinement(64 << 20, 1, 1000, os.getcwd(), ("slot",)), os.getppid())
"""


@pytest.fixture
def confined(tmp_path):
    """Runs code in a process that has confined itself to an empty folder with one file that it may write."""
    (tmp_path / "slot").touch()

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", CONFINED + textwrap.dedent(code)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


def test_memory_beyond_the_limit_is_refused(confined):
    done = confined("x = bytearray(32 << 20); print('some', flush=True); y = bytearray(64 << 20); print('more')")
    assert done.stdout == "some\n"
    assert "MemoryError" in done.stderr


def test_cpu_time_beyond_the_limit_ends_the_process_with_a_signal_that_says_so(confined):
    done = confined("while True: pass")
    assert done.returncode == -24  # SIGXCPU


def test_a_file_cannot_grow_beyond_the_limit(confined, tmp_path):
    write = "fd = os.open('slot', os.O_WRONLY)\nfor _ in range(3): os.write(fd, bytes(500))"
    done = confined("import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + write)
    assert "File too large" in done.stderr
    assert (tmp_path / "slot").stat().st_size <= 1000


@pytest.mark.parametrize("kind", ["CORE", "DATA", "CPU", "FSIZE", "NOFILE"])
def test_no_limit_can_be_raised_again(confined, kind):
    done = confined(f"""
        import resource
        hard = resource.getrlimit(resource.RLIMIT_{kind})[1]
        resource.setrlimit(resource.RLIMIT_{kind}, (hard + 1, hard + 1))
    """)
    assert "not allowed to raise maximum limit" in done.stderr or "Operation not permitted" in done.stderr


def test_every_layer_is_on_here_or_says_why_not(confined):
    layers = json.loads(confined("import json; print(json.dumps(LAYERS))").stdout)
    assert missing(layers) == {}
    assert set(layers) == {"namespaces", "user", "capabilities", *REQUIRED_LAYERS}
    assert all(state.startswith("on") or state.startswith("off: ") for state in layers.values())


def test_the_process_dies_with_its_parent():
    confined = CONFINED.replace('("slot",)', "()") + "import time; print(os.getpid(), flush=True); time.sleep(60)"
    parent = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {confined!r}]); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert Path(f"/proc/{child}").exists()
    process.kill()
    process.wait()
    process.stdout.close()
    start = time.monotonic()
    wait_until(
        lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2], 5
    )
    assert time.monotonic() - start < 5


def test_a_process_whose_parent_is_gone_already_ends_at_once():
    code = "from service.nouns import Confinement; from service.worker.sandbox import confine; confine('compile', Confinement(1 << 30, 9, 9), 1); print('still here')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
