"""The real server in what an ordinary container is: which layers hold there, that it works, and that hostile code is held.

There is no Docker here; `tests.worker.container` makes what it would make.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from service.nouns import REQUIRED_LAYERS
from tests.conftest import ROOT, child_pids, wait_until
from tests.worker.contained import SOME

MLP_INPUT = {"input": [[0.5] * 8] * 2}
LANDLOCK = [444, 445, 446]
# As `docker run` makes it by default, and as docs/deploy.md says (an own user, --cap-drop ALL).
USERS = {"root with Docker's capabilities": 0, "a user without capabilities": 10001}


def why_not() -> str | None:
    """Why no container can be made here."""
    if platform.machine() != "x86_64":
        return "the refused calls have the numbers of x86-64"
    if os.geteuid() != 0:
        return "making the namespaces and mounts of a container needs root"
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x20020000))"
    made = subprocess.run([sys.executable, "-c", code], check=False)
    return None if made.returncode == 0 else "this root may make no namespaces"


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


class Container:
    """A container, what runs in it as process 1, and its data folder, which is /data inside."""

    def __init__(self, folder: Path, uid: int, denied: list[int], *command: str) -> None:
        self.data = folder / "data"
        self.data.mkdir(exist_ok=True)
        os.chown(self.data, uid, uid)
        readable = sorted({sys.base_prefix, sys.prefix, str(ROOT)}, key=len)
        spec = {"data": str(self.data), "readable": readable, "uid": uid, "denied": denied}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.container", json.dumps(spec), sys.executable, *command],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    def output(self) -> tuple[int, str, str]:
        """How it ended, and what it said."""
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err

    def stop(self) -> int:
        self.process.terminate()
        self.output()
        return self.process.returncode


@pytest.fixture
def run() -> Iterator[Callable[..., Container]]:
    """Runs commands in containers."""
    # Its path is short, for a Unix socket, and every user may pass through it.
    folder = Path(tempfile.mkdtemp(prefix="relaxd-container-"))
    folder.chmod(0o755)
    started: list[Container] = []

    def start(uid: int, *command: str, denied: list[int] | None = None) -> Container:
        started.append(Container(folder, uid, denied or [], *command))
        return started[-1]

    yield start
    for container in started:
        if container.process.poll() is None:
            container.stop()
    subprocess.run(["rm", "-r", str(folder)], check=True)


SERVE = ("-m", "service", "serve", "--socket", "/data/socket", "--data", "/data/relaxd")


@contextlib.contextmanager
def serving(container: Container) -> Iterator[httpx.Client]:
    """A client of the server in a container."""
    assert container.process.stdout is not None
    line = container.process.stdout.readline()
    assert line.startswith("relaxd listens on"), container.output()
    transport = httpx.HTTPTransport(uds=str(container.data / "socket"))
    with httpx.Client(transport=transport, base_url="http://localhost", timeout=120) as http:
        yield http


@pytest.mark.parametrize("user", USERS)
def test_the_server_works_in_a_container_with_all_required_layers(run, model_file, user):
    container = run(USERS[user], *SERVE)
    with serving(container) as http:
        sandbox = http.get("/healthz").json()["sandbox"]
        assert set(sandbox) == {"compile", "infer", "link"}
        for layers in sandbox.values():
            assert {layers[name] for name in REQUIRED_LAYERS} == {"on"}
            assert layers["user"].startswith("on")
            assert layers["capabilities"] == "on"
            assert layers["namespaces"].startswith("off: ")
        compiled = http.post("/compile", files={"model": model_file("mlp").read_bytes()})
        assert compiled.status_code == 201, compiled.text
        asked = {"model": compiled.json()["id"], "inputs": MLP_INPUT}
        assert http.post("/infer", json=asked).status_code == 200
        # The server is process 1: what has lost its parent is its own to reap.
        (server,) = child_pids(container.process.pid)
        zygotes = child_pids(server)
        workers = [pid for zygote in zygotes for pid in child_pids(zygote)]
        assert workers
        for pid in zygotes:
            os.kill(pid, 9)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (*zygotes, *workers)))
        wait_until(lambda: http.post("/infer", json=asked).status_code == 200, 60)
    assert container.stop() == 0


@pytest.mark.parametrize("user", USERS)
def test_hostile_code_in_a_worker_in_a_container_has_no_effect(run, user):
    status, out, err = run(USERS[user], "-m", "tests.worker.contained", "compile").output()
    assert status == 0, err
    *results, victim = [json.loads(line) for line in out.splitlines()]
    assert [result["name"] for result in results] == list(SOME)
    for result in results:
        assert "HARM" not in result["output"], result
        assert result["status"] not in (0, None), result
        assert result["left"] == ["slot"], result
    assert victim == {"unharmed": True}


def test_without_landlock_the_server_in_a_container_says_so_and_does_not_start(run):
    status, _, err = run(10001, *SERVE, denied=LANDLOCK).output()
    assert status == 1
    assert "landlock" in err
    assert "--allow-weak-sandbox" in err
    assert "Traceback" not in err


def test_it_starts_without_landlock_where_that_is_allowed(run):
    container = run(10001, *SERVE, "--allow-weak-sandbox", denied=LANDLOCK)
    with serving(container) as http:
        layers = http.get("/healthz").json()["sandbox"]["compile"]
        assert layers["landlock"].startswith("off: ")
        assert layers["seccomp"] == "on"
    assert container.stop() == 0


def test_the_container_is_one(run):
    """What the emulation takes away is away: else the tests above show nothing."""
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, number, arguments in (("unshare", 272, (0x10000000,)), ("mount", 165, (0, 0, 0, 0, 0)), ("keyctl", 250, (0, -3, 1)),
                                ("bpf", 321, (5, 0, 0)), ("setns", 308, (0, 0)), ("clone", 56, (0x10000011, 0, 0, 0, 0))):
    assert libc.syscall(number, *arguments) == -1 and ctypes.get_errno() == 1, name
assert os.getpid() == 1 and len([p for p in os.listdir("/proc") if p.isdigit()]) == 1
assert open("/proc/keys").read() == ""
for path in ("/usr/x", "/proc/sys/kernel/hostname", "/x"):
    try:
        open(path, "w").write("x")
    except OSError as error:
        assert error.errno in (13, 30), (path, error)
    else:
        raise AssertionError(path)
"""
    status, _, err = run(0, "-c", code).output()
    assert status == 0, err
