"""Preflights: a model looked at by a compile worker of its own, without a Compilation and without a record."""

from __future__ import annotations

import asyncio
from pathlib import Path

from service.errors import InternalError, JsonObject, Overloaded, problem_from_json
from service.nouns import CompileJob, Limits, ModelFormat, Recipe, TensorSpec, Verify
from service.pool import Deadline, Pool
from service.run import confinement_of
from service.wire import Frame, FrameLimits
from service.work_folder import COMPILE_FILES, work_folder

MAX_REPORT_JSON = 16 << 20
MAX_WAITING = 16


class Inspections:
    """Runs preflights, as many at a time as compilations."""

    def __init__(self, pool: Pool, limits: Limits, scratch: Path) -> None:
        self._pool = pool
        self._limits = limits
        self._scratch = scratch
        self._slots = asyncio.Semaphore(limits.concurrent_compilations)
        self._waiting = 0

    async def operators(self) -> JsonObject:
        """The operators that the compile worker announces. Raises InternalError, ShuttingDown."""
        announced: JsonObject = (await self._pool.zygote("compile")).announcement["operators"]
        return announced

    async def inspect(
        self, model: Path, model_format: ModelFormat, declared: tuple[TensorSpec, ...] | None, inputs: Path | None
    ) -> JsonObject:
        """The report on the file at `model`; `inputs` are example inputs. Raises Problem."""
        if self._waiting >= MAX_WAITING:
            raise Overloaded(
                f"{self._waiting} inspections are running or waiting, the limit is {MAX_WAITING}. Send it later.",
                limit=MAX_WAITING,
                retry_after_s=5,
            )
        readable = {"model": model} | ({} if inputs is None else {"inputs.npz": inputs})
        job = CompileJob(
            model_path="model",
            format=model_format,
            recipe=Recipe(()),
            verify=Verify.ARTIFACT,
            inputs=declared,
            inputs_path=None if inputs is None else "inputs.npz",
            work_dir=".",
            limits=self._limits,
        )
        self._waiting += 1
        try:
            async with self._slots:
                with work_folder(self._scratch, readable, COMPILE_FILES) as folder:
                    return await self._ask(job, folder)
        finally:
            self._waiting -= 1

    async def _ask(self, job: CompileJob, folder: Path) -> JsonObject:
        limits = self._limits
        confinement = confinement_of(limits, folder)
        deadline = Deadline(
            limits.compile_s,
            f"The inspection was stopped after its limit of {limits.compile_s:g} s. Send a smaller model.",
        )
        doing = "while it looked at the model"
        frame_limits = FrameLimits(MAX_REPORT_JSON, 0)
        async with self._pool.lend("compile", confinement, frame_limits, deadline, doing) as worker:
            await worker.send(Frame({"op": "inspect", "job": job.to_json()}))
            answer = (await worker.receive()).body
        return _report(answer)


def _report(answer: JsonObject) -> JsonObject:
    """The worker's report, held to its form: the worker is treated as hostile."""
    event = answer.get("event")
    if event == "failed" and isinstance(answer.get("problem"), dict):
        raise problem_from_json(answer["problem"])
    report = answer.get("report")
    fields = ("format", "signature", "parameters", "operators", "unsupported")
    if event != "inspected" or not isinstance(report, dict) or set(report) != set(fields):
        raise InternalError("The compile worker sent a report that makes no sense.")
    return report
