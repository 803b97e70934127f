"""What importing and compiling real architectures costs, beside torch.export alone.

Each model of the tests' zoo, and an unrolled two-layer LSTM of 59 steps, is exported (timed) and sent to a warm server,
the two steps interleaved model by model, ``ROUNDS`` times; the minimum of CPU time counts. relaxd's figures are its own
account by phase: the import has the reading, the checks, the decomposition and the conversion to Relax.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import torch
from torch import nn

from bench.machine import describe
from tests.zoo import ZOO, make

ROUNDS = 2
PHASES = ("import", "pass", "build", "verify")


class UnrolledLstm(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """Two LSTM cells over 59 steps, written as a Python loop, as exporters of recurrent nets leave it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTMCell(32, 48), nn.LSTMCell(48, 48)

    def forward(self, x: Any) -> Any:
        """x: (59, 1, 32) float32; gives (1, 48)."""
        h1 = c1 = h2 = c2 = torch.zeros(1, 48)
        for step in range(59):
            h1, c1 = self.first(x[step], (h1, c1))
            h2, c2 = self.second(h1, (h2, c2))
        return h2


def models() -> dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]]:
    """Name to a function that makes the module and its example inputs."""
    made = {name: (lambda name=name: make(name)) for name in ZOO}
    return {**made, "unrolled_lstm_59": lambda: (UnrolledLstm().eval(), (torch.randn(59, 1, 32),))}


def export(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[bytes, float]:
    """The .pt2, and the CPU seconds that torch.export.export took."""
    start = time.process_time()
    program = torch.export.export(module, inputs)
    seconds = time.process_time() - start
    content = io.BytesIO()
    torch.export.save(program, content)
    return content.getvalue(), seconds


def main() -> None:
    """Prints a row a model, then the figures as JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data", f"{folder}/data"]
        with (
            Path(f"{folder}/log").open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ)) as server,
        ):
            try:
                url = (server.stdout.readline() if server.stdout else "").split()[-1]
                measure(url)
            finally:
                server.terminate()


def measure(url: str) -> None:
    """The rounds. A round has a recipe of its own length, so that nothing is answered from the store."""
    figures: dict[str, dict[str, float]] = {}
    made = models()
    with httpx.Client(base_url=url, timeout=600) as http:
        for round_ in range(ROUNDS + 1):
            for name in ["lenet"] if round_ == 0 else made:
                content, export_s = export(*made[name]())
                passes = [*generic(), *["dead_code_elimination"] * round_]
                request = json.dumps({"passes": passes})
                answer = http.post("/compile", files={"model": ("m.pt2", content), "request": (None, request)}).json()
                if "timings" not in answer:
                    print(f"{name}: {answer['detail'][:100]}")
                    continue
                found = {"export": export_s} | {t["phase"]: t["cpu_ms"] / 1000 for t in answer["timings"]}
                best = figures.setdefault(name, found)
                figures[name] = {phase: min(best[phase], found[phase]) for phase in found}
    print(f"{'CPU seconds':20} {'torch.export':>12}" + "".join(f" {phase:>8}" for phase in PHASES) + "   import/export")
    for name, found in figures.items():
        row = "".join(f" {found[phase]:8.2f}" for phase in PHASES)
        print(f"{name:20} {found['export']:12.2f}{row} {found['import'] / found['export']:15.2f}")
    print(json.dumps({"machine": describe(), "cpu_s": figures}))


def generic() -> list[str]:
    """The passes of the recipe `generic`."""
    return ["legalize_ops", "annotate_tir_op_pattern", "fold_constant", "fuse_ops", "fuse_tir"]


if __name__ == "__main__":
    main()
