"""One attempt of a bisection: a part of a model, tried for a symptom."""

from __future__ import annotations

import dataclasses

from service.compiler.locating import locate
from service.compiler.pipeline import Emit
from service.compiler.reduction import NotReducible, Whole, part_of, reduce
from service.compiler.schedules.known import using
from service.errors import JsonObject
from service.nouns import CompileJob, ModelFormat
from service.symptoms import REDUCED_FILE, Fragment, Symptom


def bisect(body: JsonObject, job: CompileJob, emit: Emit) -> None:
    """Looks for the symptom of ``body`` in the model, or in the part of it that ``body`` describes.

    Emits ``reduced`` when the part is written to the work folder, which is before anything runs that may end this
    process; ``refused`` when PyTorch does not take it; in the end ``located``.
    """
    symptom = Symptom.from_json(body["symptom"])
    if body["fragment"] is not None:
        emit({"event": "begin", "phase": "reduction", "step": 0, "pass": None}, ())
        try:
            whole = Whole.load(job)
            reduced = reduce(whole, Fragment.from_json(body["fragment"]))
        except NotReducible as error:
            emit({"event": "refused", "reason": str(error)}, ())
            return
        reduced.save(f"{job.work_dir}/{REDUCED_FILE}")
        emit({"event": "reduced", **reduced.to_json(), "hint": part_of(whole, body["node"])}, ())
        job = dataclasses.replace(
            job,
            model_path=f"{job.work_dir}/{REDUCED_FILE}",
            format=ModelFormat.EXPORTED_PROGRAM,
            inputs=None,
            inputs_path=None,
        )
    with using(job.tuning.by_key()):
        finding = locate(job, symptom, emit, body["only"])
    emit({"event": "located", "finding": None if finding is None else finding.to_json()}, ())
