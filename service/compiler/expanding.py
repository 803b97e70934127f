"""The passes that run inside of one step, or of the build: each with its time and, where it changed a thing, the IR."""

from __future__ import annotations

import time
from typing import Any

import tvm
import tvm_ffi
from tvm import IRModule

from service.compiler.build import build_executable
from service.compiler.context import pass_context
from service.compiler.foreign import boundary
from service.compiler.functions import readable_back
from service.compiler.importers import find_importer
from service.compiler.passes import make_pass
from service.compiler.report import Report
from service.compiler.schedules.known import using
from service.compiler.target import tvm_target
from service.errors import ExecutionFailed, JsonObject
from service.nouns import CompileJob

# A pass that does nothing but run others.
_SEQUENCE = "sequential"


def expand_step(job: CompileJob, step: int) -> list[JsonObject]:
    """The inner passes of a step of the job's Recipe, in the order in which they began; those of the build after it.

    The steps before are run again. Each has its `name`, its `level` inside of others, whether it `changed` the module,
    `wall_ms`, and the `text` after it, null where nothing changed or no room was left. Raises Problem.
    """
    recorder = _Recorder(job.limits.ir_bytes // 2)
    target = tvm_target(job.recipe.target)
    mod = find_importer(job.format, job.translator.name).import_model(job).module
    sentence = f"The passes up to step {step} could not be run again"
    with using(job.tuning.by_key()), boundary(ExecutionFailed, sentence, job.limits, step=step):
        for spec in job.recipe.passes[: step - 1]:
            with pass_context(job.recipe.context), target:
                mod = make_pass(spec).apply(mod, Report())
        with pass_context(job.recipe.context, [recorder]), target:
            if step > len(job.recipe.passes):
                build_executable(mod, target)
            elif step > 0:
                make_pass(job.recipe.passes[step - 1]).apply(mod, Report())
    return recorder.entries


@tvm.instrument.pass_instrument
class _Recorder:
    def __init__(self, limit_bytes: int) -> None:
        self.entries: list[JsonObject] = []
        self._left_bytes = limit_bytes
        self._running: list[tuple[JsonObject, IRModule, float]] = []

    def run_before_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM before each pass, nested ones too."""
        level = sum(entry["name"] != _SEQUENCE for entry, _, _ in self._running)
        entry: JsonObject = {"name": str(info.name), "level": level, "changed": False, "wall_ms": 0.0, "text": None}
        if info.name != _SEQUENCE:
            self.entries.append(entry)
        self._running.append((entry, mod, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM after each pass that did not fail."""
        ended = time.perf_counter()
        while self._running:
            entry, before, began = self._running.pop()
            if entry["name"] == str(info.name):
                break
        else:
            return
        entry["wall_ms"] = round((ended - began) * 1e3, 3)
        entry["changed"] = not tvm_ffi.structural_equal(before, mod)
        if entry["changed"] and entry["name"] != _SEQUENCE:
            text = readable_back(mod.script(show_meta=False))
            if len(text) <= self._left_bytes:
                self._left_bytes -= len(text)
                entry["text"] = text
