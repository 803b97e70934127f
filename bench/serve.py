"""Requests per second beside a C echo and other Python servers: ``./dev bench serve``.

wrk asks in a closed loop at 1, 8 and 64 connections; the candidates take turns, window by window; the best and the
median window count, with CPU time and memory of all processes of a server. relaxd is asked in OIP binary and OIP JSON,
through the fast lane, and once through the route (with a header that the fast lane leaves to it). RELAXD_BENCH_MLSERVER
and RELAXD_BENCH_LITSERVE name a Python that has that peer; without it the result says that it was not measured.
RELAXD_BENCH_SECONDS and RELAXD_BENCH_ROUNDS set the windows. The result is written to bench/results.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from torch import nn

from bench.machine import describe
from tests.zoo import make

HERE = Path(__file__).parent
CONNECTIONS = (1, 8, 64)
SECONDS = int(os.environ.get("RELAXD_BENCH_SECONDS", "2"))
ROUNDS = int(os.environ.get("RELAXD_BENCH_ROUNDS", "3"))
MODELS = os.environ.get("RELAXD_BENCH_MODELS", "mlp,lenet,resnet18").split(",")
HEADER = "Inference-Header-Content-Length"


@dataclass
class Candidate:
    """A running server, what it is asked, and what was measured by number of connections."""

    name: str
    pid: int
    url: str
    path: str
    body: bytes
    headers: dict[str, str]
    figures: dict[int, list[dict[str, float]]] = field(default_factory=dict)


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    """784-128-10."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).eval(), (torch.randn(1, 784),)


def prepare(name: str, folder: Path) -> np.ndarray[Any, Any]:
    """Writes the model's files; its input."""
    module, inputs = mlp() if name == "mlp" else make(name)
    torch.export.save(torch.export.export(module.eval(), inputs), folder / "model.pt2")
    if name == "mlp":
        values = [each.detach().numpy() for each in module.parameters()]
        np.savez(folder / "weights.npz", w0=values[0], b0=values[1], w1=values[2], b1=values[3])
    array: np.ndarray[Any, Any] = inputs[0].numpy()
    return array


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
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
        subprocess.Popen(command, stdout=out, stderr=out, text=True, env=environ, start_new_session=True) as process,
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


def wait_for(url: str, path: str, body: bytes, headers: dict[str, str]) -> None:
    """Until the server answers the request. Raises RuntimeError."""
    said = "nothing"
    for _ in range(300):
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.post(url + path, content=body, headers=headers, timeout=30)
            if answer.status_code == 200:
                return
            said = f"{answer.status_code} {answer.text[:200]}"
        time.sleep(0.2)
    raise RuntimeError(f"{url}{path} does not answer: {said}")


def bodies(name: str, value: np.ndarray[Any, Any]) -> tuple[tuple[bytes, dict[str, str]], tuple[bytes, dict[str, str]]]:
    """OIP binary and OIP JSON, each with its headers."""
    entry = {"name": name, "shape": list(value.shape), "datatype": "FP32"}
    raw = {**entry, "parameters": {"binary_data_size": value.nbytes}}
    head = json.dumps({"inputs": [raw], "parameters": {"binary_data_output": True}}).encode()
    text = json.dumps({"inputs": [{**entry, "data": value.ravel().tolist()}]}).encode()
    return (head + value.tobytes(), {HEADER: str(len(head))}), (text, {"Content-Type": "application/json"})


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


def window(candidate: Candidate, connections: int, folder: Path) -> dict[str, float]:
    """One window of wrk."""
    (folder / "body").write_bytes(candidate.body)
    headers = "".join(f'wrk.headers["{name}"]="{value}"\n' for name, value in candidate.headers.items())
    (folder / "ask.lua").write_text(
        f'wrk.method="POST"\nlocal file=io.open("{folder}/body","rb")\nwrk.body=file:read("*all")\nfile:close()\n'
        f'{headers}wrk.path="{candidate.path}"\n'
    )
    before = cpu_s(candidate.pid)
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{SECONDS}s",
        "--latency",
        "-s",
        str(folder / "ask.lua"),
        candidate.url,
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    spent = cpu_s(candidate.pid) - before
    count, seconds = re.search(r"(\d+) requests in ([\d.]+)s", said).groups()  # type: ignore[union-attr]
    p50 = re.search(r"50%\s+([\d.]+)(us|ms|s)", said)
    return {
        "requests_per_s": int(count) / float(seconds),
        "p50_us": float(p50[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[p50[2]] if p50 else 0.0,
        "cpu_us": spent / max(int(count), 1) * 1e6,
        "errors": float(sum(int(each) for each in re.findall(r"Non-2xx or 3xx responses: (\d+)", said))),
    }


def peers(folder: Path) -> dict[str, list[str]]:
    """Command lines of the peers that can be started here, but for the port."""
    found = {
        name: [sys.executable, str(HERE / "serve_peers.py"), name, str(folder)]
        for name in ("fastapi_torch", "fastapi_tvm")
    }
    for name in ("mlserver", "litserve"):
        python = os.environ.get(f"RELAXD_BENCH_{name.upper()}")
        if python:
            found[name] = [python, str(HERE / "serve_peers.py"), name, str(folder)]
    return found


def measure(name: str, folder: Path) -> dict[str, Any]:
    """All candidates of one model."""
    value = prepare(name, folder)
    with contextlib.ExitStack() as stack:
        port = free_port()
        command = [sys.executable, "-m", "service", "serve", "--port", str(port), "--data", str(folder / "data")]
        relaxd = stack.enter_context(started(command, folder / "relaxd.log"))
        url = f"http://127.0.0.1:{port}"
        document = compile_model(url, folder / "model.pt2")
        library = document["id"]
        archive = httpx.get(f"{url}/artifacts/{library}/archive", timeout=60).content
        (folder / "archive").write_bytes(archive)
        shutil.unpack_archive(folder / "archive", folder / "unpacked", "zip" if archive[:2] == b"PK" else "gztar")
        shutil.copy(next((folder / "unpacked").rglob("model.so")), folder / "model.so")
        binary, text = bodies(document["signature"]["inputs"][0]["name"], value)
        path = f"/v2/models/{library}/infer"
        candidates = [
            Candidate("relaxd, OIP binary", relaxd.pid, url, path, *binary),
            Candidate("relaxd, OIP JSON", relaxd.pid, url, path, *text),
            Candidate(
                "relaxd by its route, OIP binary", relaxd.pid, url, path, binary[0], {**binary[1], "TE": "trailers"}
            ),
        ]
        echo_port = free_port()
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-o", folder / "echo", HERE / "serve_echo.c"], check=True)
        echo = stack.enter_context(started([str(folder / "echo"), str(echo_port), "200"], folder / "echo.log"))
        candidates.append(Candidate("C echo, no inference", echo.pid, f"http://127.0.0.1:{echo_port}", "/", *binary))
        for peer, start in peers(folder).items():
            if name != "mlp" and peer in ("mlserver", "litserve"):
                continue
            peer_port = free_port()
            process = stack.enter_context(started([*start, str(peer_port)], folder / f"{peer}.log"))
            peer_path = {"mlserver": "/v2/models/mlp/infer", "litserve": "/predict"}.get(peer, "/")
            candidates.append(
                Candidate(f"{peer}, JSON", process.pid, f"http://127.0.0.1:{peer_port}", peer_path, *text)
            )
        for each in candidates:
            wait_for(each.url, each.path, each.body, each.headers)
        return in_turns(candidates, folder)


def compile_model(url: str, file: Path) -> dict[str, Any]:
    """The Compilation of a model on a server that may still be starting."""
    for _ in range(100):
        with contextlib.suppress(httpx.TransportError):
            document: dict[str, Any] = httpx.post(
                f"{url}/compile", files={"model": file.read_bytes()}, timeout=600
            ).json()
            return document
        time.sleep(0.3)
    raise RuntimeError("the server does not start")


def in_turns(candidates: list[Candidate], folder: Path) -> dict[str, Any]:
    """The rounds: each candidate has a window of each number of connections, one after the other."""
    for _ in range(ROUNDS):
        for connections in CONNECTIONS:
            for candidate in candidates:
                candidate.figures.setdefault(connections, []).append(window(candidate, connections, folder))
    found = {}
    for candidate in candidates:
        found[candidate.name] = {
            "memory_mb": round(memory_mb(candidate.pid), 1),
            **{str(connections): summary(windows) for connections, windows in candidate.figures.items()},
        }
    return found


def summary(windows: list[dict[str, float]]) -> dict[str, float]:
    """Best and median of the windows."""
    rates = [each["requests_per_s"] for each in windows]
    return {
        "best_per_s": round(max(rates)),
        "median_per_s": round(statistics.median(rates)),
        "p50_us": round(min(each["p50_us"] for each in windows), 1),
        "cpu_us": round(min(each["cpu_us"] for each in windows), 1),
        "errors": sum(each["errors"] for each in windows),
    }


def table(found: dict[str, Any]) -> str:
    """Requests a second by connections (best window), p50 at one connection, CPU a request at the most of them."""
    lines = [
        f"{'':34}" + "".join(f"{number:>10}" for number in CONNECTIONS) + f"{'p50 at 1':>12}{'CPU/req':>10}{'MB':>8}"
    ]
    for name, row in found.items():
        rates = "".join(f"{row[str(number)]['best_per_s']:>10}" for number in CONNECTIONS)
        cpu_us = row[str(CONNECTIONS[-1])]["cpu_us"]
        lines.append(f"{name:34}{rates}{row['1']['p50_us']:>9.0f} µs{cpu_us:>7.0f} µs{row['memory_mb']:>8.0f}")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints, and writes the result."""
    warnings.simplefilter("ignore")
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: install it (apt install wrk)")
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": describe(),
        "load_before": os.getloadavg(),
        "window_s": SECONDS,
        "rounds": ROUNDS,
        "not_measured": [
            name for name in ("mlserver", "litserve") if not os.environ.get(f"RELAXD_BENCH_{name.upper()}")
        ],
        "models": {},
    }
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            result["models"][name] = measure(name, Path(folder))
        print(
            f"{name}: requests a second, best of {ROUNDS} windows of {SECONDS} s\n{table(result['models'][name])}\n",
            flush=True,
        )
    result["load_after"] = os.getloadavg()
    file = HERE / "results" / f"serve-{result['date']}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {file.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
