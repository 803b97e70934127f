"""What `bench serve` measures with: processes and their ends, CPU time and memory of a server, windows of wrk."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

HERE = Path(__file__).parent


@dataclass
class Candidate:
    """A running server, what it is asked, and what was measured by number of connections.

    Without a `url` it is the artifact alone: a process that measures itself when a line with seconds comes.
    """

    name: str
    process: subprocess.Popen[str]
    url: str = ""
    path: str = "/"
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    figures: dict[int, list[dict[str, float]]] = field(default_factory=dict)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(
    command: list[str], log: Path, *, piped: bool = False, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A process, and its end."""
    environ = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parent),
        **environment,
    }
    with (
        log.open("w") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else out,
            stderr=out,
            text=True,
            env=environ,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            # With all that it has started, which some servers leave behind.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(candidate: Candidate) -> None:
    """Until the server answers the request. Raises RuntimeError."""
    said = "nothing"
    for _ in range(300):
        with contextlib.suppress(httpx.HTTPError):
            url = candidate.url + candidate.path
            answer = httpx.post(url, content=candidate.body, headers=candidate.headers, timeout=30)
            if answer.status_code == 200:
                return
            said = f"{answer.status_code} {answer.text[:200]}"
        if candidate.process.poll() is not None:
            said = f"it ended with code {candidate.process.returncode}"
            break
        time.sleep(0.2)
    raise RuntimeError(f"{candidate.name} does not answer: {said}")


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in family(int(child)))]


def cpu_s(pid: int) -> float:
    """User and system seconds of a family."""
    total = 0
    for each in family(pid):
        with contextlib.suppress(OSError):
            total += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Proportional set size of a family."""
    total = 0
    for each in family(pid):
        with contextlib.suppress(OSError):
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{each}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total / 1024


def window(candidate: Candidate, connections: int, seconds: int, folder: Path) -> dict[str, float]:
    """One window: requests a second, p50 and CPU time of a request in µs, answers that were errors."""
    if not candidate.url:
        return _bare_window(candidate.process, seconds)
    (folder / "body").write_bytes(candidate.body)
    headers = "".join(f'wrk.headers["{name}"]="{value}"\n' for name, value in candidate.headers.items())
    (folder / "ask.lua").write_text(
        f'wrk.method="POST"\nlocal file=io.open("{folder}/body","rb")\nwrk.body=file:read("*all")\nfile:close()\n'
        f'{headers}wrk.path="{candidate.path}"\n'
    )
    before = cpu_s(candidate.process.pid)
    script = str(folder / "ask.lua")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script, candidate.url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    spent = cpu_s(candidate.process.pid) - before
    count, took = re.search(r"(\d+) requests in ([\d.]+)s", said).groups()  # type: ignore[union-attr]
    p50 = re.search(r"50%\s+([\d.]+)(us|ms|s)", said)
    return {
        "requests_per_s": int(count) / float(took),
        "p50_us": float(p50[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[p50[2]] if p50 else 0.0,
        "cpu_us": spent / max(int(count), 1) * 1e6,
        "errors": float(sum(int(each) for each in re.findall(r"Non-2xx or 3xx responses: (\d+)", said))),
    }


def _bare_window(process: subprocess.Popen[str], seconds: int) -> dict[str, float]:
    _pipe(process.stdin).write(f"{seconds}\n")
    _pipe(process.stdin).flush()
    found: dict[str, float] = json.loads(_pipe(process.stdout).readline())
    return found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("the process was started without pipes")
    return pipe


def recovery_ms(candidate: Candidate, count: int) -> list[float]:
    """How long after the kill of relaxd's one infer worker the next answer comes, in ms, `count` times.

    Asked without a pause by one client; what it is told before (503, or nothing) does not count.
    """
    found = []
    with httpx.Client(timeout=30) as http:
        for _ in range(count):
            http.post(candidate.url + candidate.path, content=candidate.body, headers=candidate.headers)
            time.sleep(0.3)
            os.kill(_infer_worker(candidate.process.pid), signal.SIGKILL)
            begun = time.perf_counter()
            while True:
                answer = http.post(candidate.url + candidate.path, content=candidate.body, headers=candidate.headers)
                if answer.status_code == 200:
                    break
            found.append((time.perf_counter() - begun) * 1e3)
    return found


def _infer_worker(pid: int) -> int:
    """The newest grandchild of the web process: zygotes are its children, workers theirs."""
    workers = [int(each) for child in family(pid)[1:] for each in _children(child)]
    return max(workers)


def _children(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return []
