"""One Compilation from a file to a verified library: the table of contents of this package."""

from __future__ import annotations

from typing import Any

from service.compiler.build import Linker, build_executable, link_with_ld, manifest, write_library
from service.compiler.clock import Duration
from service.compiler.context import pass_context
from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel, find_importer
from service.compiler.pipeline import Emit, Pipeline, begin
from service.compiler.results import BuildRecorder
from service.compiler.step_numbers import StepNumbers
from service.compiler.target import tvm_target
from service.compiler.verify import example_case, make_cases, verify
from service.errors import BuildFailed, ExecutionFailed, ImportFailed, JsonObject, VerificationFailed
from service.nouns import CompileJob, Verify
from service.runtime.session import Session


def compile_model(job: CompileJob, emit: Emit, link: Linker = link_with_ld) -> None:
    """Compiles the Model of `job` to `job.library_path` and emits what happens, each event as soon as it is known.

    Raises a Problem when it fails; what was emitted before stays valid. `link` may be replaced where a sandbox
    forbids starting processes.
    """
    target = _resolve_target(job)
    importing = Duration()
    model = _import(job, emit, importing)
    last = len(job.recipe.passes)
    numbers = _numbers(job, model, target)
    pipeline = Pipeline(target, job.limits, emit, numbers, model.origins)
    pipeline.import_step(model.module, importing, model.notes)
    with pass_context(job.recipe.context):
        mod = pipeline.run(model.module, job.recipe.passes)

    emit(begin("build", last, None), ())
    building = Duration()
    recorder = BuildRecorder()
    with building.measure(), boundary(BuildFailed, "The module could not be built", job.limits, step=last):
        with pass_context(job.recipe.context, [recorder]):
            executable = build_executable(mod, target)
        results = list(recorder.results(executable))
        library_bytes = write_library(executable, job, link)
    for index, result in enumerate(results, start=last + 1):
        pipeline.result_step(index, result)

    emit(begin("verify", last, None), ())
    with pipeline.verifying.measure():
        verification = _verify(job, model, last, numbers)
    phases = {"import": importing, "pass": pipeline.spent, "build": building, "verify": pipeline.verifying}
    succeeded: JsonObject = {
        "event": "succeeded",
        "verification": verification,
        "manifest": manifest(job, model.signature, target, library_bytes),
        "timings": [{"phase": phase, **duration.to_json()} for phase, duration in phases.items()],
    }
    emit(succeeded, ())


def _resolve_target(job: CompileJob) -> Any:
    with boundary(BuildFailed, "The target could not be resolved", job.limits, field="target"):
        return tvm_target(job.recipe.target)


def _import(job: CompileJob, emit: Emit, duration: Duration) -> ImportedModel:
    emit(begin("import", 0, None), ())
    with duration.measure(), boundary(ImportFailed, "The model could not be imported", job.limits, step=0):
        model = find_importer(job.format, job.translator.name).import_model(job)
    emit({"event": "signature", "signature": model.signature.to_json()}, ())
    return model


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
