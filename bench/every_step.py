"""What ``"verify": "every_step"`` costs: CPU seconds of one Compilation with it, without it, and of the plain way.

In-process, the two requests interleaved, the minimum of `ROUNDS` counts. ``checks`` is what the checks of all steps
took in it; ``runs`` is the least that any way must take, the sum of the runs alone; ``plain`` builds each step's module
in full, as would be done without shared kernels, and runs it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.machine import describe
from service.compiler.build import build_executable
from service.compiler.compile import compile_model
from service.compiler.importers import find_importer
from service.compiler.kernel_cache import KernelCache
from service.compiler.passes import make_pass
from service.compiler.recipes import load_catalogue
from service.compiler.report import Report
from service.compiler.target import tvm_target
from service.compiler.verify import example_case
from service.nouns import CompileJob, Limits, ModelFormat, Target, Verify
from service.runtime.session import Session
from tests.zoo import make

ROUNDS = 3
MODELS = ("lenet", "resnet18", "bert", "lstm_tagger")
RECIPES = ("course", "generic", "fast")


def cpu_s(run: Callable[[], Any]) -> float:
    """CPU seconds of the process during one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def nothing(_body: dict[str, Any], _blobs: tuple[bytes, ...]) -> None:
    """Takes an event."""


def parts(job: CompileJob) -> dict[str, float]:
    """Seconds of the runs alone, of the checks with shared kernels, and of the plain way, over all steps."""
    model = find_importer(job.format).import_model(job)
    target, case = tvm_target(Target()), example_case(model)
    modules = [model.module]
    with target:
        for spec in job.recipe.passes:
            modules.append(make_pass(spec).apply(modules[-1], Report()))
    cache = KernelCache(target)
    shared = runs = plain = 0.0
    for mod in modules:
        built: list[Any] = []
        shared += cpu_s(lambda mod=mod, built=built: built.append(Session(cache.build(mod))))  # type: ignore[misc]
        runs += cpu_s(lambda built=built: built[0].run(case.inputs))  # type: ignore[misc]
        plain += cpu_s(lambda mod=mod: Session(build_executable(mod, target)).run(case.inputs))  # type: ignore[misc]
    return {"runs_s": runs, "checks_s": shared + runs, "plain_s": plain}


def measure(name: str, recipe: str, folder: str) -> dict[str, Any]:
    """The figures of one model and recipe."""
    torch.manual_seed(0)
    module, inputs = make(name)
    path = str(Path(folder) / f"{name}.pt2")
    torch.export.save(torch.export.export(module.eval(), inputs), path)
    catalogue = load_catalogue()

    def job(verify: Verify) -> CompileJob:
        chosen = catalogue.recipe(recipe, Target(), 200)
        return CompileJob(path, ModelFormat.EXPORTED_PROGRAM, chosen, verify, None, None, folder, Limits())

    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for key, verify in (("artifact_s", Verify.ARTIFACT), ("every_step_s", Verify.EVERY_STEP)):
            spent = cpu_s(lambda verify=verify: compile_model(job(verify), nothing))  # type: ignore[misc]
            best[key] = min(best.get(key, spent), spent)
    best |= parts(job(Verify.EVERY_STEP))
    rounded = {key: round(value, 3) for key, value in best.items()}
    return {
        "model": name, "recipe": recipe, **rounded, "of_artifact": round(best["every_step_s"] / best["artifact_s"], 2),
        "of_plain": round(best["checks_s"] / best["plain_s"], 2),
    }  # fmt: skip


def main() -> None:
    """Prints a row for each model and recipe, and all of it as JSON."""
    rows = []
    presets = load_catalogue().recipes
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            for recipe in (each for each in RECIPES if each in presets):
                rows.append(measure(name, recipe, folder))
                print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps({"rows": rows, "machine": describe()}, indent=1))


if __name__ == "__main__":
    main()
