"""One Compilation from a file to a verified library: the table of contents of this package."""

from __future__ import annotations

from typing import Any

from tvm import IRModule

from service.compiler.build import Linker, link_with_ld, manifest, write_library
from service.compiler.clock import Duration, check
from service.compiler.context import pass_context
from service.compiler.example import example_json
from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel, find_importer
from service.compiler.inner_passes import InnerPasses, position_notes
from service.compiler.kernel_objects import KnownKernels, NoKernels, make_objects, split, write_archive
from service.compiler.pipeline import Emit, Pipeline, begin
from service.compiler.results import MemoryRecorder, Result, results
from service.compiler.schedules.known import using
from service.compiler.step_numbers import StepNumbers
from service.compiler.target import cpu_flags, tvm_target
from service.compiler.tuner import Tuner
from service.compiler.verify import example_case, make_cases, verify
from service.errors import BuildFailed, ExecutionFailed, ImportFailed, JsonObject, VerificationFailed
from service.nouns import CompileJob, Verify
from service.runtime.session import Session


def compile_model(job: CompileJob, emit: Emit, link: Linker = link_with_ld) -> None:
    """Compiles the Model of `job` to `job.library_path` and emits what happens, each event as soon as it is known.

    Raises a Problem when it fails; what was emitted before stays valid. `link` may be replaced where a sandbox
    forbids starting processes.
    """
    Compiler(emit, link).compile(job)


class Compiler:
    """One Model, compiled by one Recipe after another: the steps that a Recipe has in common with the last are kept."""

    def __init__(self, emit: Emit, link: Linker = link_with_ld, known: KnownKernels | None = None) -> None:
        self._emit = emit
        self._link = link
        self._known = known or NoKernels()
        self._importing = Duration()
        self._model: ImportedModel | None = None
        self._numbers: StepNumbers | None = None
        self._pipeline: Pipeline | None = None
        self._tuner: Tuner | None = None

    def compile(self, job: CompileJob) -> None:
        """Compiles as `compile_model` does, all of it or what comes after a step of the last time (`job.after`).

        What goes before that step, model, inputs, target and checks must be those of the last time.
        """
        target, after = _resolve_target(job), job.after
        if after is None or self._model is None or self._pipeline is None:
            after = 0
            self._model = self._import(job)
            self._numbers = _numbers(job, self._model, target)
            inner = InnerPasses(position_notes(job.work_dir))
            origins = self._model.origins
            checks = self._numbers
            example = None if checks is None else example_json(checks.case, self._model.signature)
            self._pipeline = Pipeline(target, job.limits, self._emit, checks, origins, job.keep, inner, example)
            self._pipeline.import_step(self._model.module, self._importing, self._model.notes)
        else:
            self._importing = Duration()
            self._pipeline.go_back(after)
        known, budget_s = job.tuning.by_key(), job.tuning.budget_s
        self._tuner = None if budget_s is None else Tuner(target, known, budget_s, self._emit, job.limits)
        self._pipeline.prepare = None if self._tuner is None else self._tuner.before
        with using(known), pass_context(job.recipe.context, [self._pipeline.inner]):
            mod = self._pipeline.run(job.recipe.passes, after)
        closing = self._finish(job, target, mod, self._model, self._pipeline)
        self._emit({"event": "succeeded", **closing}, ())

    def _import(self, job: CompileJob) -> ImportedModel:
        self._emit(begin("import", 0, None), ())
        sentence = "The model could not be imported"
        self._importing = Duration()
        with self._importing.measure(), boundary(ImportFailed, sentence, job.limits, step=0):
            model = find_importer(job.format, job.translator.name).import_model(job)
        check("import", self._importing, job.limits, step=0)
        self._emit({"event": "signature", "signature": model.signature.to_json()}, ())
        return model

    def _finish(
        self, job: CompileJob, target: Any, mod: IRModule, model: ImportedModel, pipeline: Pipeline
    ) -> JsonObject:
        """Builds and verifies, unless the Recipe ends before; what is told at the end."""
        phases = {"import": self._importing, "pass": pipeline.spent}
        if self._tuner is not None:
            phases["tune"] = self._tuner.spent
        if job.recipe.until is not None:
            phases["verify"] = pipeline.verifying
            return {"verification": None, "manifest": None, "timings": _timings(phases)}
        last = len(job.recipe.passes)
        self._emit(begin("build", last, None), ())
        building = Duration()
        sentence = "The module could not be built"
        with building.measure(), pipeline.inner.named(mod), boundary(BuildFailed, sentence, job.limits, step=last):
            made, library_bytes = self._build(job, target, mod, pipeline.inner)
        check("build", building, job.limits, step=last)
        for index, result in enumerate(made, start=last + 1):
            pipeline.result_step(index, result)
        self._emit(begin("verify", last, None), ())
        with pipeline.verifying.measure():
            verification = _verify(job, model, last, self._numbers)
        check("verify", pipeline.verifying, job.limits, step=last)
        phases |= {"build": building, "verify": pipeline.verifying}
        told = manifest(job, model.signature, target, library_bytes)
        told["cpu_flags"] = cpu_flags(target)
        told["verification"] = {name: verification[name] for name in ("depth", "tolerances")}
        return {"verification": verification, "manifest": told, "timings": _timings(phases)}

    def _build(self, job: CompileJob, target: Any, mod: IRModule, inner: InnerPasses) -> tuple[list[Result], int]:
        """Writes the library; the stages of the build, and the library's bytes."""
        memory, splitting = MemoryRecorder(), Duration()
        with pass_context(job.recipe.context, [memory, inner]):
            with splitting.measure():
                executable, functions = split(mod, target)
            kernels = make_objects(functions, target, job.work_dir, self._known, position_notes(job.work_dir))
        made = list(results(executable, splitting, memory.plan, kernels))
        archives = [write_archive(kernels, job.work_dir)] if kernels.objects else []
        return made, write_library(executable, job, self._link, archives)


def _timings(phases: dict[str, Duration]) -> list[JsonObject]:
    return [{"phase": phase, **duration.to_json()} for phase, duration in phases.items()]


def _resolve_target(job: CompileJob) -> Any:
    with boundary(BuildFailed, "The target could not be resolved", job.limits, field="target"):
        return tvm_target(job.recipe.target)


def _numbers(job: CompileJob, model: ImportedModel, target: Any) -> StepNumbers | None:
    if job.verify is not Verify.EVERY_STEP:
        return None
    names = tuple(spec.name for spec in model.signature.outputs)
    depth = model.reference.depth()
    return StepNumbers(example_case(model), target, depth, names, model.node_of, model.node_values)


def _verify(job: CompileJob, model: ImportedModel, last: int, numbers: StepNumbers | None) -> JsonObject:
    steps = None if numbers is None else numbers.summary()
    with boundary(ExecutionFailed, "The library could not be verified", job.limits, step=last):
        cases = make_cases(model)
        try:
            result = verify(Session(job.library_path), cases, model.signature.outputs, job.special_values.value)
        except VerificationFailed as problem:
            problem.extensions["steps"] = steps
            raise
    return result | {"steps": steps}
