"""CPU inference beside PyTorch eager, torch.compile, ONNX Runtime, OpenVINO and TVM's default pipeline.

``./dev bench cpu`` measures all models with one and two threads. RELAXD_BENCH_MODELS and RELAXD_BENCH_THREADS choose
some (comma-separated), RELAXD_BENCH_PYTHON the Python that has the peers of the extra ``bench``, if not this one. Every
candidate has a process of its own; rounds are interleaved; a figure is the smallest over all rounds. What is not near
eager's answer is not timed. A matrix product and a product of matrix and vector stand beside what the machine can do at
most, measured in the same run with one thread. The result is written to bench/results, as JSON and as a plot.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cpu_models import MODELS
from bench.machine import describe
from bench.ratio_plot import svg

HERE = Path(__file__).parent
PEERS = ("eager", "compile", "onnxruntime", "openvino", "tvm")
ROUNDS = int(os.environ.get("RELAXD_BENCH_ROUNDS", "5"))
_OURS = ("relaxd", "tvm")


@dataclass
class Candidate:
    """A running candidate, or why it does not run."""

    name: str
    process: subprocess.Popen[str] | None
    report: dict[str, Any]

    def ask(self) -> dict[str, float]:
        """One round."""
        if self.process is None or self.process.stdin is None or self.process.stdout is None:
            return {}
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return dict(json.loads(line)) if line else {}


def start(name: str, model: str, threads: int) -> Candidate:
    """Starts a candidate and waits until it is ready."""
    python = sys.executable if name in _OURS else os.environ.get("RELAXD_BENCH_PYTHON", sys.executable)
    number = str(threads)
    environment = {
        **os.environ, "OMP_NUM_THREADS": number, "TVM_NUM_THREADS": number, "MKL_NUM_THREADS": number,
        "TVM_BIND_THREADS": "0", "PYTHONPATH": str(HERE.parent),
    }  # fmt: skip
    command = [python, "-W", "ignore", str(HERE / "cpu_candidate.py"), name, model, number]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    line = process.stdout.readline() if process.stdout else ""
    report = json.loads(line) if line else {"right": False}
    if report["right"]:
        return Candidate(name, process, report)
    _, said = process.communicate()
    return Candidate(name, None, {**report, "reason": said.strip().splitlines()[-1:]})


def measure(model: str, threads: int) -> dict[str, Any]:
    """The figures of all candidates for one model, and ours over the best peer's."""
    candidates = [start(name, model, threads) for name in ("relaxd", *PEERS)]
    figures: dict[str, Any] = {each.name: dict(each.report) for each in candidates}
    try:
        for _ in range(ROUNDS):
            for each in candidates:
                for key, value in each.ask().items():
                    figures[each.name][key] = min(value, figures[each.name].get(key, math.inf))
    finally:
        for each in candidates:
            if each.process is not None:
                each.process.kill()
                each.process.communicate()
    row: dict[str, Any] = {"model": model, "threads": threads, "candidates": figures}
    peers = [figures[name]["wall_min"] for name in PEERS if "wall_min" in figures[name]]
    if peers and "wall_min" in figures["relaxd"]:
        row["ratio_to_best_peer"] = figures["relaxd"]["wall_min"] / min(peers)
    return row


def line_of(row: dict[str, Any]) -> str:
    """One row of the table: our time, and each peer's over ours."""
    figures = row["candidates"]
    mine = figures["relaxd"].get("wall_min")
    cells = [f"{row['model']:28} {row['threads']:>2}"]
    cells.append(f"{mine * 1e6:11.1f} us" if mine else f"{'failed':>14}")
    for name in PEERS:
        theirs = figures[name].get("wall_min")
        cells.append(f"{theirs / mine:11.2f}" if theirs and mine else f"{'-':>11}")
    cells.append(f"{row['ratio_to_best_peer']:8.2f}" if "ratio_to_best_peer" in row else f"{'-':>8}")
    return " ".join(cells)


def main() -> None:
    """Prints a line a row, then the geometric mean, and writes the JSON."""
    wanted = os.environ.get("RELAXD_BENCH_MODELS")
    models = wanted.split(",") if wanted else list(MODELS)
    threads = [int(each) for each in os.environ.get("RELAXD_BENCH_THREADS", "1,2").split(",")]
    print(f"{'model':28} {'th':>2} {'relaxd':>14} " + " ".join(f"{name:>11}" for name in PEERS) + "    ours/best")
    path = HERE / "results" / f"cpu-{datetime.datetime.now(tz=datetime.UTC).date()}.json"
    # What was measured earlier this day, by another choice, stays.
    earlier: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    known = {(row["model"], row["threads"]): row for row in earlier["rows"]}
    measured = []
    for number in threads:
        for model in models:
            row = known[model, number] = measure(model, number)
            measured.append(row)
            print(line_of(row), flush=True)
    rows = list(known.values())
    shares = earlier.get("shares_of_peak", {}) | shares_of_peak(measured)
    for name, share in shares.items():
        print(f"{name}: {share:.2f} of the most that one core does, measured")
    ratios = [row["ratio_to_best_peer"] for row in rows if "ratio_to_best_peer" in row]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    print(f"geometric mean of ours to the best peer: {mean}")
    result = {"machine": describe(), "rows": rows, "geometric_mean": mean, "shares_of_peak": shares}
    path.write_text(json.dumps(result, indent=1) + "\n")
    bars = [
        (f"{row['model']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}", row["ratio_to_best_peer"])
        for row in rows
        if "ratio_to_best_peer" in row
    ]
    path.with_suffix(".svg").write_text(svg(f"relaxd's time over the best peer's, {path.stem[4:]}", bars))
    print(path)


def shares_of_peak(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What our code reaches of the measured peak of multiply-adds and of reading memory, with one thread."""
    from service.runtime.machine_peak import measure_peak

    ours = {row["model"]: row["candidates"]["relaxd"].get("wall_min") for row in rows if row["threads"] == 1}
    # As many bytes as the matrix has: part of them stays in a cache between two runs, of either.
    peak = measure_peak(4 * 4096**2)
    found = {}
    if ours.get("gemm 1024"):
        found["gemm 1024, operations"] = 2 * 1024**3 / ours["gemm 1024"] / peak.flops_per_s
    if ours.get("gemv 4096"):
        found["gemv 4096, bytes"] = 4 * 4096**2 / ours["gemv 4096"] / peak.bytes_per_s
    return found


if __name__ == "__main__":
    main()
