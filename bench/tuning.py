"""Tuned beside untuned: the models of the CPU benchmark compiled twice, by the rules and with a budget for tuning.

``./dev bench tuning``. Both run in this process with one thread, round by round in turn; a figure is the smallest CPU
time of a call over all rounds. RELAXD_BENCH_MODELS chooses some (comma-separated), RELAXD_BENCH_BUDGET_S the seconds of
tuning for each (60), RELAXD_BENCH_ROUNDS the rounds. Each model starts without records.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
import warnings
from typing import Any

import torch
import tvm

from bench.cpu_candidate import one_round
from bench.cpu_models import MODELS, make
from bench.machine import describe
from service.compiler.compile import compile_model
from service.compiler.recipes import load_catalogue
from service.errors import JsonObject
from service.nouns import CompileJob, Limits, ModelFormat, Target, Verify
from service.runtime.session import Session
from service.tuning import TUNED, Tuning

ROUNDS = int(os.environ.get("RELAXD_BENCH_ROUNDS", "9"))
BUDGET_S = float(os.environ.get("RELAXD_BENCH_BUDGET_S", "60"))


def compiled(job: CompileJob) -> tuple[Session, list[JsonObject]]:
    """The built library, and what became of each kernel."""
    steps: list[JsonObject] = []

    def emit(event: JsonObject, _blobs: tuple[bytes, ...]) -> None:
        if event["event"] == "step":
            steps.append(event["step"])

    compile_model(job, emit)
    (scheduled,) = (step for step in steps if step["pass"] == TUNED)
    return Session(job.library_path), scheduled["details"]["kernels"]


def measure(name: str) -> JsonObject:
    """The least CPU µs of both, and how many kernels were tuned, and got other parameters."""
    module, inputs = make(name)
    tensors = [tvm.runtime.tensor(value.numpy()) for value in inputs]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/upload.pt2"
        torch.export.save(torch.export.export(module, inputs), path)
        recipe = load_catalogue().recipe("fast", Target(), 200)
        job = CompileJob(
            path,
            ModelFormat.EXPORTED_PROGRAM,
            recipe,
            Verify.ARTIFACT,
            None,
            None,
            folder,
            Limits(),
            library="rules.so",
        )
        rules, _ = compiled(job)
        tuned, kernels = compiled(dataclasses.replace(job, library="tuned.so", tuning=Tuning(BUDGET_S)))
    calls = [lambda session=session: session._entry(*tensors) for session in (rules, tuned)]
    best = [math.inf, math.inf]
    for _ in range(ROUNDS):
        for index, call in enumerate(calls):
            best[index] = min(best[index], one_round(call)["cpu_min"] * 1e6)
    measured = [entry for entry in kernels if entry["tuned"]]
    return {
        "rules_us": round(best[0], 2),
        "tuned_us": round(best[1], 2),
        "ratio": round(best[1] / best[0], 3),
        "measured": len(measured),
        "changed": sum(entry["gain"] > 1 for entry in measured),
        "kernels": len(kernels),
    }


def main() -> None:
    """Prints a row a model, then all as JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chosen = os.environ.get("RELAXD_BENCH_MODELS")
    names = list(MODELS) if chosen is None else chosen.split(",")
    rows: dict[str, Any] = {}
    print(f"{'model':<30}{'rules µs':>12}{'tuned µs':>12}{'tuned/rules':>13}   kernels changed, measured, all")
    for name in names:
        row = rows[name] = measure(name)
        print(
            f"{name:<30}{row['rules_us']:>12}{row['tuned_us']:>12}{row['ratio']:>13}"
            f"   {row['changed']}, {row['measured']}, {row['kernels']}",
            flush=True,
        )
    ratios = [row["ratio"] for row in rows.values()]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean of the ratios: {mean:.3f}")
    print(json.dumps({"machine": describe(), "budget_s": BUDGET_S, "rounds": ROUNDS, "models": rows}))


if __name__ == "__main__":
    main()
