"""What most tests need: exported models, and a real server over a socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes one of `tests.models` as a .pt2 (or ``traced``, ``scripted``, ``fx``), once a session."""
    folder = tmp_path_factory.mktemp("models")

    def write(name: str, form: str = "pt2") -> Path:
        file = folder / f"{name}.{form}"
        if not file.exists():
            # In a process of its own: torch stays out of the tests of the web process.
            subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "tests.models", name, str(file), form], cwd=ROOT, check=True
            )
        return file

    return write


@dataclass
class Server:
    """A relaxd server in a process of its own."""

    url: str
    data: Path
    process: subprocess.Popen[str]
    http: httpx.Client

    def compile(
        self, model: Path | bytes, request: dict[str, Any] | None = None, prefer: str | None = None
    ) -> httpx.Response:
        """POST /compile."""
        content = model if isinstance(model, bytes) else model.read_bytes()
        files: dict[str, Any] = {"model": ("model.pt2", content)}
        if request is not None:
            files["request"] = (None, json.dumps(request), "application/json")
        headers = {} if prefer is None else {"Prefer": prefer}
        return self.http.post("/compile", files=files, headers=headers)

    def kill(self) -> None:
        """kill -9, as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(30)

    def zygote_pids(self) -> list[int]:
        """The server's child processes."""
        return child_pids(self.process.pid)

    def worker_pids(self) -> list[int]:
        """The children of the zygotes: compile and infer workers."""
        return [worker for zygote in self.zygote_pids() for worker in child_pids(zygote)]

    def wait_for_worker(self, seconds: float = 20.0) -> int:
        """The pid of a worker that works now."""
        return wait_until(lambda: next(iter(self.worker_pids()), None), seconds)


def child_pids(pid: int) -> list[int]:
    """The running children of a process."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def wait_until(probe: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What `probe` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = probe()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"not true within {seconds} s")


def start_server(data: Path, *flags: str, **environment: str) -> Server:
    """Starts a server on a free port with its data in `data`, and waits until it answers."""
    log = (data.parent / f"{data.name}.log").open("a")
    process = subprocess.Popen(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--data", str(data), *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, **environment},
    )
    log.close()
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("relaxd listens on "):
            url = line.split()[-1]
            return Server(url, data, process, httpx.Client(base_url=url, timeout=120))
    raise AssertionError(f"the server did not start: {(data.parent / f'{data.name}.log').read_text()}")


def end_server(server: Server) -> None:
    """Stops a server if it still runs, and closes what belongs to it."""
    server.http.close()
    if server.process.poll() is None:
        server.stop()
    assert server.process.stdout is not None
    server.process.stdout.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests that leave it as it was."""
    running = start_server(tmp_path_factory.mktemp("server") / "data")
    yield running
    end_server(running)


@pytest.fixture(scope="session")
def server_url(server: Server) -> str:
    """Its address."""
    return server.url


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that the test may kill; the second one in the same test uses the same data."""
    started: list[Server] = []

    def start(*flags: str, **environment: str) -> Server:
        started.append(start_server(tmp_path / "data", *flags, **environment))
        return started[-1]

    yield start
    for running in started:
        end_server(running)
