"""Hostile code inside each kind of worker: what it tries, as root and as plain user, has no effect and an end.

Each behaviour of `tests.hostile.behaviours` runs in a process that has confined itself as a worker does. The victim's
side is checked, too: secrets unread, files unwritten, processes alive, sockets silent.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.hostile.behaviours import BEHAVIOURS

# Debian's own Python, which other users can read; the one that runs the tests may lie in root's home.
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534

SIGSYS = (
    "trace the victim",
    "use io_uring",
    "load a BPF program",
    "mount",
    "call by the x32 numbers",
    "enter a namespace",
)


@dataclass
class Victim:
    """A process to harm, a secret to read, sockets to reach, another worker's folder."""

    process: subprocess.Popen[bytes]
    secret: Path
    sibling: Path
    sockets: list[socket.socket]
    environment: dict[str, str]

    def state(self) -> tuple[object, ...]:
        """What must be the same afterwards."""
        facts = self.secret.stat()
        return (
            self.process.poll(),
            os.getpriority(os.PRIO_PROCESS, self.process.pid),
            self.secret.read_text(),
            (facts.st_mode, facts.st_uid, facts.st_mtime_ns, facts.st_size),
            sorted((path.name, path.read_text()) for path in self.sibling.iterdir()),
            Path("/tmp/relaxd-harm").exists() or Path("/dev/shm/relaxd-harm").exists(),
            [self._asked(sock) for sock in self.sockets],
        )

    def _asked(self, sock: socket.socket) -> bool:
        try:
            sock.accept()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can read, with the sandbox's code and the battery."""
    # Not in pytest's own folder, which it closes to others whenever it starts.
    folder = Path(tempfile.mkdtemp(prefix="relaxd-battery-"))
    folder.chmod(0o755)
    (folder / "tests" / "hostile").mkdir(parents=True)
    subprocess.run(["cp", "-r", str(ROOT / "service"), str(folder)], check=True)
    for name in ("__init__.py", "hostile/__init__.py", "hostile/battery.py", "hostile/behaviours.py"):
        subprocess.run(["cp", str(ROOT / "tests" / name), str(folder / "tests" / name)], check=True)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def victim(open_folder: Path) -> Iterator[Victim]:
    folder = open_folder / "victim"
    sibling = folder / "work-1-1"
    sibling.mkdir(parents=True)
    secret = folder / "secret"
    for path in (secret, sibling / "model", sibling / "slot"):
        path.write_text(f"the content of {path.name}")
        path.chmod(0o644)
    listener = socket.create_server(("127.0.0.1", 0))
    local, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    local.bind(str(folder / "socket"))
    abstract.bind("\0relaxd-battery")
    for sock in (local, abstract):
        sock.listen()
    for sock in (listener, local, abstract):
        sock.setblocking(False)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    environment = {
        "SECRET": str(secret), "SIBLING": str(sibling), "VICTIM": str(process.pid), "UNIX": str(folder / "socket"),
        "PORT": str(listener.getsockname()[1]), "PATH": os.environ["PATH"],
    }  # fmt: skip
    yield Victim(process, secret, sibling, [listener, local, abstract], environment)
    process.kill()
    process.wait()
    for sock in (listener, local, abstract):
        sock.close()


def identities() -> list[str]:
    """Where the tests are not run by root, there is only one."""
    others = ["plain user", "root that becomes nobody"]
    return ["as it is", *(others if os.geteuid() == 0 and Path(SYSTEM_PYTHON).exists() else [])]


def run_battery(role: str, identity: str, environment: dict[str, str], code: Path, folders: Path) -> list[dict]:
    """What became of each behaviour."""
    folders.mkdir()
    if identity == "plain user":
        os.chown(folders, NOBODY, NOBODY)
    done = subprocess.run(
        [
            sys.executable if identity == "as it is" else SYSTEM_PYTHON, "-P", "-m", "tests.hostile.battery", role,
            *([str(NOBODY)] if identity == "root that becomes nobody" else []),
        ],
        cwd=folders,
        env={**environment, "PYTHONPATH": str(code), "FOLDERS": str(folders)},
        capture_output=True,
        check=False,
        timeout=400,
        user=NOBODY if identity == "plain user" else None,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_there_are_enough_of_them() -> None:
    assert len(BEHAVIOURS) >= 55


@pytest.mark.parametrize("identity", identities())
@pytest.mark.parametrize("role", ["compile", "infer", "link"])
def test_hostile_code_in_a_worker_has_no_effect(victim, open_folder, role, identity):
    before, start = victim.state(), time.monotonic()
    results = run_battery(role, identity, victim.environment, open_folder, open_folder / "folders")
    assert [result["name"] for result in results] == list(BEHAVIOURS)
    for result in results:
        assert "HARM" not in result["output"], result
        assert result["status"] not in (0, None), result
        assert result["left"] == ["slot"], result
        assert result["slot_bytes"] <= 1 << 20, result
        assert result["seconds"] < 60, result
    statuses = {result["name"]: result["status"] for result in results}
    # Calls that nothing honest makes kill: the server reports such a worker as crashed.
    assert {statuses[name] for name in SIGSYS} == {-signal.SIGSYS}
    assert victim.state() == before
    assert time.monotonic() - start < 400
