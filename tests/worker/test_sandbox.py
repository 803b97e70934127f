"""What a worker gives up, tried from inside a process that has given it up."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, wait_until

CONFINED = """
import os, sys
from service.nouns import Confinement
from service.worker.sandbox import confine
confine(Confinement(memory_bytes=64 << 20, cpu_s=1, file_bytes=1000), os.getppid())
"""


def confined(code: str) -> subprocess.CompletedProcess[str]:
    script = CONFINED + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_memory_beyond_the_limit_is_refused():
    done = confined("x = bytearray(32 << 20); print('some', flush=True); y = bytearray(64 << 20); print('more')")
    assert done.stdout == "some\n"
    assert "MemoryError" in done.stderr


def test_cpu_time_beyond_the_limit_ends_the_process_with_a_signal_that_says_so():
    done = confined("while True: pass")
    assert done.returncode == -24  # SIGXCPU


def test_a_file_cannot_grow_beyond_the_limit(tmp_path):
    write = f"fd = os.open({str(tmp_path / 'f')!r}, os.O_CREAT | os.O_WRONLY)\nfor _ in range(3): os.write(fd, bytes(500))"
    done = confined("import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + write)
    assert "File too large" in done.stderr
    assert (tmp_path / "f").stat().st_size <= 1000


@pytest.mark.parametrize("kind", ["CORE", "DATA", "CPU", "FSIZE"])
def test_no_limit_can_be_raised_again_without_privileges(kind):
    if os.getuid() != 0:
        pytest.skip("only root can drop to another user, and only then is this a question")
    done = confined(f"""
        import resource
        os.setresuid(65534, 65534, 65534)
        hard = resource.getrlimit(resource.RLIMIT_{kind})[1]
        resource.setrlimit(resource.RLIMIT_{kind}, (hard + 1, hard + 1))
    """)
    assert "not allowed to raise maximum limit" in done.stderr


def test_the_process_dies_with_its_parent():
    parent = f"import os, subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {CONFINED + 'import time; print(os.getpid(), flush=True); time.sleep(60)'!r}]); time.sleep(60)"
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
    code = "from service.nouns import Confinement; from service.worker.sandbox import confine; confine(Confinement(1, 1, 1), 1); print('still here')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
