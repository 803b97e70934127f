"""Requests per second beside a C echo, a C++ server and Python servers: ``./dev bench serve``, some ten minutes.

wrk asks in a closed loop at 1, 8 and 64 connections; the candidates take turns, window by window; the best and the
median window count, with CPU time and memory of all processes of a server. relaxd is asked in OIP binary and OIP JSON,
through the fast lane, through the route (with a header that the fast lane leaves to it), and with two web processes.
Beside it: the C echo, which does not even look at the request; the library in a C++ server's own process; the library
alone, called in a loop; plain FastAPI with torch, and with the library.

The other peers run in environments of their own: ``python -m venv PEERS/NAME`` and ``PEERS/NAME/bin/pip install`` for
each NAME of mlserver, litserve, bentoml and pytriton (the package is nvidia-pytriton), and RELAXD_BENCH_PEERS=PEERS.
RELAXD_BENCH_<NAME> names the Python of one. What is not there has the row "not installed".

RELAXD_BENCH_SECONDS and RELAXD_BENCH_ROUNDS set the windows, RELAXD_BENCH_MODELS (mlp,lenet,resnet18) what is served.
The result is written to bench/results, with a plot.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from torch import nn

from bench.cpu_models import make
from bench.machine import describe
from bench.rate_plot import svg
from bench.serve_load import HERE, Candidate, free_port, memory_mb, recovery_ms, started, wait_for, window

CONNECTIONS = (1, 8, 64)
SECONDS = int(os.environ.get("RELAXD_BENCH_SECONDS", "1"))
ROUNDS = int(os.environ.get("RELAXD_BENCH_ROUNDS", "3"))
# Of the CPU benchmark, by the name here.
ZOO = {"lenet": "lenet", "resnet18": "resnet18 224"}
MODELS = os.environ.get("RELAXD_BENCH_MODELS", "mlp,lenet,resnet18").split(",")
PEERS = ("mlserver", "litserve", "bentoml", "pytriton")
KILLS = 9
HEADER = "Inference-Header-Content-Length"
OURS, JSON_OURS, BARE, IN_PROCESS, ECHO = (
    *("relaxd, OIP binary", "relaxd, OIP JSON", "the artifact alone, no server"),
    *("C++ with the artifact in process, OIP binary", "C echo, no inference"),
)

Body = tuple[bytes, dict[str, str]]
# Starts a server by a command, and has it as a candidate of that name.
Start = Callable[..., Candidate]


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    """784-128-10."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).eval(), (torch.randn(1, 784),)


def prepare(name: str, folder: Path) -> np.ndarray[Any, Any]:
    """Writes the model's files; its input."""
    module, inputs = mlp() if name == "mlp" else make(ZOO[name])
    torch.export.save(torch.export.export(module.eval(), inputs), folder / "model.pt2")
    if name == "mlp":
        values = [each.detach().numpy() for each in module.parameters()]
        np.savez(folder / "weights.npz", w0=values[0], b0=values[1], w1=values[2], b1=values[3])
    array: np.ndarray[Any, Any] = inputs[0].numpy()
    np.save(folder / "input.npy", array)
    return array


def bodies(name: str, value: np.ndarray[Any, Any]) -> tuple[Body, Body]:
    """OIP binary and OIP JSON, each with its headers."""
    entry = {"name": name, "shape": list(value.shape), "datatype": "FP32"}
    raw = {**entry, "parameters": {"binary_data_size": value.nbytes}}
    head = json.dumps({"inputs": [raw], "parameters": {"binary_data_output": True}}).encode()
    text = json.dumps({"inputs": [{**entry, "data": value.ravel().tolist()}]}).encode()
    return (head + value.tobytes(), {HEADER: str(len(head))}), (text, {"Content-Type": "application/json"})


def python_of(peer: str) -> str | None:
    """The Python of a peer's environment, if there is one."""
    folder = os.environ.get("RELAXD_BENCH_PEERS")
    named = os.environ.get(f"RELAXD_BENCH_{peer.upper()}") or (f"{folder}/{peer}/bin/python" if folder else "")
    return named if named and Path(named).exists() else None


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


def relaxd(start: Start, folder: Path, value: np.ndarray[Any, Any]) -> list[Candidate]:
    """relaxd with the model compiled, one web process and two; the library is left in the folder."""
    found = []
    for processes in (1, 2):
        port = free_port()
        flags = ["--web-processes", str(processes), "--port", str(port), "--data", str(folder / f"data{processes}")]
        server = start(OURS, [sys.executable, "-m", "service", "serve", *flags], port)
        document = compile_model(server.url, folder / "model.pt2")
        binary, text = bodies(document["signature"]["inputs"][0]["name"], value)
        server.path = f"/v2/models/{document['id']}/infer"
        server.body, server.headers = binary
        if processes == 2:
            server.name = "relaxd, 2 web processes, OIP binary"
            found.append(server)
            continue
        archive = httpx.get(f"{server.url}/artifacts/{document['id']}/archive", timeout=60).content
        (folder / "archive").write_bytes(archive)
        shutil.unpack_archive(folder / "archive", folder / "unpacked", "zip" if archive[:2] == b"PK" else "gztar")
        shutil.copy(next((folder / "unpacked").rglob("model.so")), folder / "model.so")
        same = (server.process, server.url, server.path)
        by_route = {**binary[1], "TE": "trailers"}
        found += [
            *(server, Candidate(JSON_OURS, *same, *text)),
            Candidate("relaxd by its route, OIP binary", *same, binary[0], by_route),
        ]
    return found


def in_c(start: Start, folder: Path, binary: Body, value: np.ndarray[Any, Any]) -> list[Candidate]:
    """The echo and the server with the library in process, built here."""
    import tvm
    import tvm_ffi.libinfo

    echo, in_process = folder / "echo", folder / "inprocess"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-o", echo, HERE / "serve_echo.c"], check=True)
    include, library = tvm_ffi.libinfo.find_include_path(), Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent
    flags = ["-O2", "-std=c++17", f"-I{include}", f"-L{library}", f"-Wl,-rpath,{library}", "-ltvm_ffi", "-ldl"]
    subprocess.run(["g++", HERE / "serve_inprocess.cpp", "-o", in_process, *flags], check=True)
    runtime = Path(str(tvm.__file__)).parent / "lib" / "libtvm_runtime.so"
    shape = ",".join(map(str, value.shape))
    ports = free_port(), free_port()
    return [
        start(ECHO, [str(echo), str(ports[0]), "200"], ports[0], "/", binary),
        start(
            IN_PROCESS,
            [str(in_process), str(ports[1]), str(folder / "model.so"), str(runtime), shape],
            *(ports[1], "/", binary),
        ),
    ]


def peers(start: Start, name: str, folder: Path, binary: Body, text: Body) -> list[Candidate]:
    """The Python servers that can be started here."""
    script = str(HERE / "serve_peers.py")
    found = []
    for peer in ("fastapi_torch", "fastapi_tvm", *(PEERS if name == "mlp" else ())):
        python = sys.executable if peer.startswith("fastapi") else python_of(peer)
        if python is None:
            continue
        port = free_port()
        path = {
            "mlserver": "/v2/models/mlp/infer",
            "litserve": "/predict",
            "bentoml": "/predict",
            "pytriton": "/v2/models/mlp/infer",
        }.get(peer, "/")
        form, body = ("OIP binary", binary) if peer == "pytriton" else ("JSON", text)
        found.append(start(f"{peer}, {form}", [python, script, peer, str(folder), str(port)], port, path, body))
    return found


def measure(name: str, folder: Path) -> dict[str, Any]:
    """All candidates of one model."""
    value = prepare(name, folder)
    with contextlib.ExitStack() as stack:

        def start(title: str, command: list[str], port: int, path: str = "/", body: Body = (b"", {})) -> Candidate:
            log = folder / f"{title.replace('/', ' ')}-{port}.log"
            process = stack.enter_context(started(command, log))
            return Candidate(title, process, f"http://127.0.0.1:{port}", path, *body)

        candidates = relaxd(start, folder, value)
        # The peers call the input as the library does; none of them looks at its name but pytriton's.
        binary, text = (candidates[0].body, candidates[0].headers), (candidates[1].body, candidates[1].headers)
        candidates += in_c(start, folder, binary, value)
        command = [sys.executable, str(HERE / "serve_peers.py"), "bare", str(folder), "0"]
        alone = Candidate(BARE, stack.enter_context(started(command, folder / "bare.log", piped=True)))
        candidates += [alone, *peers(start, name, folder, binary, text)]
        failed = {}
        for each in [each for each in candidates if each.url]:
            try:
                wait_for(each)
            except RuntimeError as error:
                failed[each.name] = str(error)
                candidates.remove(each)
        found: dict[str, Any] = {"rows": in_turns(candidates, folder)}
        missing = [peer for peer in PEERS if name == "mlp" and python_of(peer) is None]
        found["not_measured"] = {**dict.fromkeys(missing, "not installed"), **failed}
        if name == "mlp":
            found["recovery_ms"] = [round(each, 1) for each in recovery_ms(candidates[0], KILLS)]
        return found


def in_turns(candidates: list[Candidate], folder: Path) -> dict[str, Any]:
    """The rounds: each candidate has a window of each number of connections, one after the other."""
    for _ in range(ROUNDS):
        for connections in CONNECTIONS:
            for candidate in candidates:
                if connections == 1 or candidate.url:
                    windows = candidate.figures.setdefault(connections, [])
                    windows.append(window(candidate, connections, SECONDS, folder))
    found = {}
    for candidate in candidates:
        found[candidate.name] = {
            "memory_mb": round(memory_mb(candidate.process.pid), 1),
            **{str(connections): summary(windows) for connections, windows in candidate.figures.items()},
        }
    return found


def summary(windows: list[dict[str, float]]) -> dict[str, float]:
    """Best and median of the windows."""
    rates = [each["requests_per_s"] for each in windows]
    return {
        "best_per_s": round(max(rates), 1),
        "median_per_s": round(statistics.median(rates), 1),
        "p50_us": round(min(each["p50_us"] for each in windows), 1),
        "cpu_us": round(min(each["cpu_us"] for each in windows), 1),
        "errors": sum(each["errors"] for each in windows),
    }


def goals(models: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """What was set out to be reached, as far as it was measured: the figure, and the goal."""
    found: dict[str, tuple[float, str]] = {}

    def ratio(what: str, goal: str, model: str, ours: str, theirs: str, connections: int) -> None:
        rows = models.get(model, {}).get("rows", {})
        if ours in rows and theirs in rows:
            key = str(connections)
            found[what] = (round(rows[ours][key]["best_per_s"] / rows[theirs][key]["best_per_s"], 3), goal)

    ratio("at 64 connections, of the C echo", "0.6", "mlp", OURS, ECHO, 64)
    ratio("at 64 connections, times mlserver", "20", "mlp", OURS, "mlserver, JSON", 64)
    ratio("at 1 connection, times mlserver", "8", "mlp", OURS, "mlserver, JSON", 1)
    ratio("JSON at 64 connections, times FastAPI and pydantic", "10", "mlp", JSON_OURS, "fastapi_torch, JSON", 64)
    ratio("ResNet-18 at 1 connection, of the artifact alone", "0.98", "resnet18", OURS, BARE, 1)
    rows = models.get("mlp", {}).get("rows", {})
    if IN_PROCESS in rows:
        more = rows[OURS]["1"]["p50_us"] - rows[IN_PROCESS]["1"]["p50_us"]
        found["µs of p50 at 1 connection beyond the C++ server"] = (round(more, 1), "60 at most")
    if "recovery_ms" in models.get("mlp", {}):
        found["ms until a killed worker is back, median"] = (
            statistics.median(models["mlp"]["recovery_ms"]),
            "50 at most",
        )
    return found


def table(found: dict[str, Any]) -> str:
    """Requests a second by connections (best window), p50 at one connection, CPU a request at the most of them."""
    lines = [
        f"{'':46}" + "".join(f"{number:>10}" for number in CONNECTIONS) + f"{'p50 at 1':>12}{'CPU/req':>11}{'MB':>8}"
    ]
    for name, row in found["rows"].items():
        rates = "".join(
            f"{row[str(each)]['best_per_s']:>10.0f}" if str(each) in row else f"{'':10}" for each in CONNECTIONS
        )
        cpu_us = row.get(str(CONNECTIONS[-1]), row["1"])["cpu_us"]
        lines.append(f"{name:46}{rates}{row['1']['p50_us']:>9.0f} µs{cpu_us:>8.0f} µs{row['memory_mb']:>8.0f}")
    lines += [f"{name:46}{why}" for name, why in found["not_measured"].items()]
    return "\n".join(lines)


def plot(name: str, found: dict[str, Any]) -> str:
    """The picture of one model."""
    servers = {title: row for title, row in found["rows"].items() if str(CONNECTIONS[-1]) in row}
    rates = {title: [row[str(each)]["best_per_s"] for each in CONNECTIONS] for title, row in servers.items()}
    return svg(f"{name}: requests a second at 1, 8 and 64 connections", [str(each) for each in CONNECTIONS], rates)


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
        "models": {},
    }
    file = HERE / "results" / f"serve-{result['date']}.json"
    if file.exists():
        # What was measured earlier this day, by another choice of models, stays.
        result["models"] = json.loads(file.read_text())["models"]
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            found = result["models"][name] = measure(name, Path(folder))
        print(f"{name}: requests a second, best of {ROUNDS} windows of {SECONDS} s\n{table(found)}\n", flush=True)
        file.with_name(f"{file.stem}-{name}.svg").write_text(plot(name, found))
    result["goals"] = goals(result["models"])
    for what, (figure, goal) in result["goals"].items():
        print(f"{what}: {figure} (goal: {goal})")
    result["load_after"] = os.getloadavg()
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {file.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
