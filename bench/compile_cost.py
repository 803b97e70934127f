"""What POST /compile costs, warm, and where it goes; beside plain TVM in a process that is already warm too.

All compile the same models, each round with other weights, interleaved round by round: the lecture's network
(784-128-10), ResNet-18 and BERT-mini; ``RELAXD_BENCH_MODELS`` chooses. relaxd's CPU time is that of its whole process
tree (server, zygotes, workers), by /proc; plain TVM's is ``process_time`` of the import, its default pipeline and the
link, without snapshots, well-formed checks or verification, which relaxd does as well. The first round, in which the
server's kernels are made for the first time, is told apart from those after it. The result is written to
``bench/results/compile-cost-<date>.json``.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from bench.machine import describe

RESULTS = Path(__file__).parent / "results"

PLAIN = """
import os, sys, time, tempfile, warnings
warnings.simplefilter("ignore")
import torch, tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
torch.set_num_threads(1)
def link(out, objects, **_):
    os.spawnvp(os.P_WAIT, "ld", ["ld", "-shared", "-o", out, *objects])
for line in sys.stdin:
    start = time.process_time()
    module = from_exported_program(torch.export.load(line.strip()), keep_params_as_input=False)
    executable = tvm.compile(module, target=tvm.target.Target("llvm"))
    executable.export_library(os.path.join(tempfile.mkdtemp(), "m.so"), fcompile=link)
    print(time.process_time() - start, flush=True)
"""

EXPORT = """
import sys, torch
from bench.cpu_models import make
model, inputs = make(sys.argv[2], int(sys.argv[3]))
torch.export.save(torch.export.export(model, inputs), sys.argv[1])
"""

# Rounds after the first.
ROUNDS = {"mlp 784-128-10": 8, "resnet18 224": 3, "bert-mini 128": 3}
# `course` is for networks of dense layers.
RECIPES = {"mlp 784-128-10": ("course", "generic", "fast")}


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process, its children, and all that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(tree_cpu_s(int(child)) for child in children)


def main() -> None:
    """Prints a row a recipe and model, then where the time went, and writes the figures as JSON."""
    wanted = os.environ.get("RELAXD_BENCH_MODELS")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data", f"{folder}/data"]
        with (
            Path(f"{folder}/log").open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
            subprocess.Popen(
                [sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as plain,
        ):
            try:
                url = (server.stdout.readline() if server.stdout else "").split()[-1]
                result: dict[str, Any] = {"machine": describe(), "models": {}}
                with httpx.Client(base_url=url, timeout=600) as http:
                    for model in wanted.split(",") if wanted else ROUNDS:
                        figures = measure(http, server, plain, model, Path(folder))
                        result["models"][model] = figures
                        show(model, figures)
            finally:
                server.terminate()
                if plain.stdin is not None:
                    plain.stdin.close()
    path = RESULTS / f"compile-cost-{datetime.datetime.now(tz=datetime.UTC).date()}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


def measure(
    http: httpx.Client, server: subprocess.Popen[str], plain: subprocess.Popen[str], model: str, folder: Path
) -> dict[str, Any]:
    """CPU seconds of the first round and of those after it, by recipe, and ms of the phases of the latter."""
    recipes = RECIPES.get(model, ("generic", "fast"))
    first: dict[str, float] = {}
    seconds: dict[str, list[float]] = {name: [] for name in (*recipes, "plain TVM")}
    phases: dict[str, list[float]] = {}
    for index in range(ROUNDS.get(model, 3) + 1):
        file = folder / "model.pt2"
        subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, str(file), model, str(index)], check=True)
        for recipe in recipes:
            cpu, timings = compile_once(http, server.pid, file, recipe)
            first.setdefault(recipe, cpu)
            if index > 0:
                seconds[recipe].append(cpu)
                for timing in timings:
                    phases.setdefault(f"{recipe} {timing['phase']}", []).append(timing["cpu_ms"])
        if plain.stdin is not None and plain.stdout is not None:
            plain.stdin.write(f"{file}\n")
            plain.stdin.flush()
            cpu = float(plain.stdout.readline())
            first.setdefault("plain TVM", cpu)
            if index > 0:
                seconds["plain TVM"].append(cpu)
    return {"first_cpu_s": first, "warm_cpu_s": seconds, "warm_phase_cpu_ms": phases}


def show(model: str, figures: dict[str, Any]) -> None:
    """A table of one model."""
    base = min(figures["warm_cpu_s"]["plain TVM"])
    print(f"{model:16} {'first CPU s':>11} {'min warm':>9} {'median':>8} {'ratio to plain TVM':>20}")
    for name, values in figures["warm_cpu_s"].items():
        first = figures["first_cpu_s"][name]
        print(f"{name:16} {first:11.3f} {min(values):9.3f} {statistics.median(values):8.3f} {min(values) / base:20.2f}")
    for name, values in figures["warm_phase_cpu_ms"].items():
        print(f"  {name:24} {statistics.median(values):8.1f} ms CPU", flush=True)


def compile_once(http: httpx.Client, pid: int, model: Path, recipe: str) -> tuple[float, list[dict[str, float]]]:
    """CPU seconds of the server's processes for one new Compilation, and its own account of its phases."""
    before = tree_cpu_s(pid)
    request = {"passes": recipe}
    answer = http.post(
        "/compile", files={"model": ("m.pt2", model.read_bytes()), "request": (None, json.dumps(request))}
    )
    answer.raise_for_status()
    time.sleep(0.2)  # until the worker is reaped, and its time counted with its zygote's
    return tree_cpu_s(pid) - before, answer.json()["timings"]


if __name__ == "__main__":
    main()
