"""What POST /compile costs, warm, and where it goes; beside plain TVM in a process that is already warm too.

Both compile the lecture's network (784-128-10, random weights), interleaved round by round. relaxd's CPU time is that
of its whole process tree (server, zygotes, workers), by /proc; plain TVM's is ``process_time`` of the import, its
default pipeline and the link, without snapshots, well-formed checks or verification, which relaxd does as well.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench.machine import describe

ROUNDS = 8

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
from torch import nn
torch.manual_seed(int(sys.argv[2]))
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).eval()
torch.export.save(torch.export.export(model, (torch.randn(1, 784),)), sys.argv[1])
"""


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process, its children, and all that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(tree_cpu_s(int(child)) for child in children)


def main() -> None:
    """Prints a row a recipe, then where the time went, and the figures as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        models = []
        for index in range(ROUNDS + 1):
            file = Path(folder) / f"m{index}.pt2"
            subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, str(file), str(index)], check=True)
            models.append(file)
        command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data", f"{folder}/data"]
        with (
            Path(f"{folder}/log").open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
            subprocess.Popen(
                [sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as plain,
        ):
            try:
                measure(server, plain, models)
            finally:
                server.terminate()
                if plain.stdin is not None:
                    plain.stdin.close()


def measure(server: subprocess.Popen[str], plain: subprocess.Popen[str], models: list[Path]) -> None:
    """The rounds, interleaved; the first is not counted."""
    url = (server.stdout.readline() if server.stdout else "").split()[-1]
    seconds: dict[str, list[float]] = {"course": [], "generic": [], "plain TVM": []}
    phases: dict[str, list[float]] = {}
    with httpx.Client(base_url=url, timeout=120) as http:
        for index, model in enumerate(models):
            for recipe in ("course", "generic"):
                cpu, timings = compile_once(http, server.pid, model, recipe)
                if index > 0:
                    seconds[recipe].append(cpu)
                    for timing in timings:
                        phases.setdefault(f"{recipe} {timing['phase']}", []).append(timing["cpu_ms"])
            if plain.stdin is not None and plain.stdout is not None:
                plain.stdin.write(f"{model}\n")
                plain.stdin.flush()
                cpu = float(plain.stdout.readline())
                if index > 0:
                    seconds["plain TVM"].append(cpu)
    base = min(seconds["plain TVM"])
    print(f"{'':12} {'min CPU s':>10} {'median':>8} {'ratio to plain TVM':>20}")
    for name, values in seconds.items():
        print(f"{name:12} {min(values):10.3f} {statistics.median(values):8.3f} {min(values) / base:20.2f}")
    for name, values in phases.items():
        print(f"  {name:20} {statistics.median(values):8.1f} ms CPU")
    print(json.dumps({"machine": describe(), "cpu_s": seconds, "phase_cpu_ms": phases}))


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
