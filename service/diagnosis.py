"""What is wrong with a Compilation by its record, and how it is run again to see it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from service.errors import CompilationNotReady, NoSymptom
from service.nouns import CompileJob, Limits
from service.records import Compilation
from service.symptoms import Symptom, SymptomKind
from service.tuning import Tuning

# Names of files in the folder that a worker reads.
MODEL_FILE, INPUTS_FILE = "model", "inputs.npz"


def job_of(compilation: Compilation, limits: Limits, has_inputs: bool) -> CompileJob:
    """What a worker is told of the Compilation."""
    return CompileJob(
        model_path=MODEL_FILE,
        format=compilation.model.format,
        recipe=compilation.recipe,
        verify=compilation.verify,
        inputs=compilation.inputs,
        inputs_path=INPUTS_FILE if has_inputs else None,
        work_dir=".",
        limits=limits,
        special_values=compilation.special_values,
        translator=compilation.translator,
        tuning=Tuning(records=compilation.tuning_records),
    )


def symptom_of(compilation: Compilation) -> Symptom:
    """What is wrong with a Compilation by its record. Raises CompilationNotReady, NoSymptom."""
    if not compilation.state.ended:
        raise CompilationNotReady(
            f"Compilation {compilation.id!r} is {compilation.state.value}: wait for its end.",
            id=compilation.id,
            state=compilation.state.value,
        )
    problem = compilation.problem
    if problem is not None:
        slug = str(problem["type"]).rpartition("/")[2]
        make: Callable[[], Symptom] | None = _OF_PROBLEMS.get(slug)
        if make is None:
            raise NoSymptom(
                f"The compilation failed by {slug}, which no pass is the cause of: {problem['detail']}", problem=slug
            )
        symptom = make()
        return dataclasses.replace(symptom, runs=True) if problem.get("phase") == "verify" else symptom
    verification = compilation.verification or {}
    special = verification.get("special_values") or {}
    wrong_step = (verification.get("steps") or {}).get("first_wrong")
    if special.get("passed") is False or wrong_step is not None:
        return Symptom(SymptomKind.WRONG)
    raise NoSymptom(
        "The compilation succeeded, and its numbers are PyTorch's. Ask for a slow one by "
        '`{"symptom": "slow", "against": "<another id>"}`.',
        state=compilation.state.value,
    )


_OF_PROBLEMS: dict[str, Callable[[], Symptom]] = {
    "pass-failed": lambda: Symptom(SymptomKind.FAILURE),
    "ill-formed-module": lambda: Symptom(SymptomKind.FAILURE),
    "build-failed": lambda: Symptom(SymptomKind.FAILURE),
    "worker-crashed": lambda: Symptom(SymptomKind.CRASH),
    "deadline-exceeded": lambda: Symptom(SymptomKind.HANG),
    "verification-failed": lambda: Symptom(SymptomKind.WRONG),
    "execution-failed": lambda: Symptom(SymptomKind.WRONG),
}
