"""One run of a Compilation in a worker: what is sent, what comes back, and what each ending means.

The worker is treated as hostile: whatever it sends is checked for shape and size before it is kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import math
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from service.errors import (
    BuildFailed,
    InternalError,
    JsonObject,
    OutputTooLarge,
    Problem,
    problem_from_json,
)
from service.kernel_store import MAX_KERNEL_BYTES, KernelStore, is_key
from service.link_workers import link
from service.nouns import BUILD_STAGES, CompileJob, Confinement, Limits, Signature, Step
from service.phases import Phases, cpu_s
from service.pool import Pool, Worker, WorkerGone
from service.position import phrase, read_position, too_much_cpu, too_slow
from service.records import Compilation
from service.tuning import TuningProgress, TuningRecord
from service.uninterrupted import uninterrupted
from service.wire import Frame, FrameLimits
from service.work_folder import COMPILE_FILES
from service.worker_user import worker_uid

KeepStep = Callable[[Step, bytes], Awaitable[None]]
KeepRecord = Callable[[TuningRecord], Awaitable[None]]
Link = Callable[[list[str]], Awaitable[Frame]]

MAX_KERNELS = 4096

MAX_EVENT_JSON = 16 << 20
MAX_RECORDS = 1024
# Progress of tuning is told this often at most.
TOLD_S = 0.2


class Lent(Protocol):
    """What a Run needs of the worker that it is lent."""

    worker: Worker
    folder: Path
    spent_s: float


@dataclass(frozen=True)
class CallersKernels:
    """The kept kernels that the Compilations of one caller may have; without a store, none."""

    store: KernelStore | None = None
    caller: str = ""

    def find(self, keys: list[str]) -> dict[str, bytes]:
        return {} if self.store is None else self.store.find(self.caller, keys)

    def keep(self, key: str, made: bytes) -> None:
        """Keeps what a worker made for later ones."""
        if self.store is not None:
            self.store.keep(self.caller, key, made)


class Run:
    """The running form of a Compilation. `compilation` is replaced as events arrive."""

    def __init__(self, compilation: Compilation, limits: Limits) -> None:
        self.compilation = compilation
        self.ended = asyncio.Event()
        self.recorded = False
        self._progress = asyncio.Event()
        self._limits = limits
        self._doing: JsonObject = {"phase": "start"}
        self._phases: Phases | None = None
        self._told_at = -math.inf
        self._records = 0

    async def execute(
        self,
        pool: Pool,
        job: CompileJob,
        lease: Lent,
        keep_step: KeepStep,
        keep_record: KeepRecord,
        kernels: CallersKernels,
    ) -> JsonObject:
        """Runs the job in a leased worker; returns its closing event.

        `keep_step` is called for each Step as it arrives, and `keep_record` for each kernel that has been measured, so
        that a failure later loses none. Raises Problem; the worker may be kept after a Problem that it reported itself.
        """
        limits, worker = self._limits, lease.worker
        cpu, tunes = functools.partial(cpu_s, worker.pid), job.tuning.budget_s is not None
        self._phases = phases = Phases(limits, worker.kill, cpu=cpu, cores=_cores(), tunes=tunes)
        watching = asyncio.create_task(phases.watch())
        started = asyncio.get_running_loop().time()
        seconds = limits.compile_s + (job.tuning.budget_s or 0.0)
        try:
            async with asyncio.timeout(seconds):
                await worker.send(Frame({"job": job.to_json()}))
                link = functools.partial(_link, pool, lease.folder, job.library, limits)
                closing = await self._follow(worker, keep_step, keep_record, link, kernels)
            phases.look()
            if phases.exceeded is None:
                return closing
            raise WorkerGone("it was stopped")
        except TimeoutError as error:
            worker.kill()
            raise too_slow(seconds, self._note_position(lease.folder)) from error
        except WorkerGone as error:
            doing = self._note_position(lease.folder)
            problem: Problem = phases.exceeded or await worker.fate(phrase(doing))
            if problem.extensions.get("signal") == "SIGXCPU":
                problem = too_much_cpu(limits.compile_cpu_s, doing)
            problem.extensions = {**doing, **problem.extensions}
            raise problem from error
        except asyncio.CancelledError:
            worker.kill()
            raise
        finally:
            watching.cancel()
            if phases.exceeded is not None:
                lease.spent_s = math.inf  # It is killed, and must not be kept.
            lease.spent_s += asyncio.get_running_loop().time() - started

    async def progress(self) -> None:
        """Returns after the next step, or the end."""
        await self._progress.wait()

    def note_progress(self) -> None:
        """Wakes all that wait for progress; whoever waits from now on waits for the next."""
        self._progress.set()
        self._progress = asyncio.Event()

    async def _follow(
        self, worker: Worker, keep_step: KeepStep, keep_record: KeepRecord, link: Link, kernels: CallersKernels
    ) -> JsonObject:
        while True:
            event, payload = self._understand(await worker.receive())
            if event == "succeeded":
                closing: JsonObject = payload
                return closing
            if event == "step":
                step, snapshot = payload
                await self._take_step(step, snapshot, keep_step)
            elif event == "tuning" and payload is not None:
                await keep_record(payload)
            elif event == "link":
                await worker.send(await link(payload))
            elif event == "kernels":
                known = await asyncio.to_thread(kernels.find, payload)
                await worker.send(Frame({"keys": list(known)}, tuple(known.values())))
            elif event == "kernel":
                await uninterrupted(kernels.keep, *payload)

    def _understand(self, frame: Frame) -> tuple[str, Any]:
        """The event of a frame and what it carries. Raises the Problem of a failure, InternalError on nonsense."""
        understand: dict[str, Callable[[Frame], Any]] = {
            "begin": self._note_begin,
            "signature": self._note_signature,
            "step": lambda frame: (Step.from_json(frame.body["step"]), bytes(frame.blobs[0])),
            "tuning": self._note_tuning,
            "link": lambda frame: [str(name) for name in frame.body["objects"]],
            "kernels": lambda frame: _checked_keys(frame.body["keys"]),
            "kernel": lambda frame: (*_checked_keys([frame.body["key"]]), bytes(frame.blobs[0])),
            "succeeded": lambda frame: {name: frame.body[name] for name in ("timings", "verification", "manifest")},
            "failed": lambda frame: problem_from_json(frame.body["problem"]),
        }
        try:
            event = str(frame.body["event"])
            payload = understand[event](frame)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise InternalError(f"The compile worker sent a message that makes no sense ({error!r}).") from error
        if isinstance(payload, Problem):
            raise payload
        return event, payload

    async def _take_step(self, step: Step, snapshot: bytes, keep_step: KeepStep) -> None:
        done, passes = len(self.compilation.steps), len(self.compilation.recipe.passes)
        results = len(self.compilation.results)
        is_result = step.stage in BUILD_STAGES
        expected = passes + 1 + results if is_result else done
        known = {result.stage for result in self.compilation.results}
        if step.index != expected or (is_result and (done <= passes or step.stage in known)):
            _raise_unintelligible(f"step {step.index} ({step.stage}) after {done} steps and {results} results")
        if not is_result and done > passes:
            _raise_unintelligible(f"step {step.index} after {done} steps")
        await keep_step(step, snapshot)
        self.compilation = self.compilation.with_step(step)
        self.note_progress()

    def _note_signature(self, frame: Frame) -> None:
        signature = Signature.from_json(frame.body["signature"])
        self.compilation = dataclasses.replace(self.compilation, signature=signature)

    def _note_tuning(self, frame: Frame) -> TuningRecord | None:
        """How far the search is, and a record where a kernel is done. Raises ValueError where none was asked for."""
        asked = self.compilation.tuning
        progress = TuningProgress.from_json(frame.body["progress"])
        if asked is None:
            raise ValueError("nobody has asked for tuning")
        progress = dataclasses.replace(progress, budget_s=asked.budget_s)
        self.compilation = dataclasses.replace(self.compilation, tuning=progress)
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TOLD_S:
            self._told_at = now
            self.note_progress()
        if frame.body["record"] is None:
            return None
        self._records += 1
        if self._records > MAX_RECORDS:
            raise ValueError("too many tuning records")
        return TuningRecord.from_json(frame.body["record"])

    def _note_begin(self, frame: Frame) -> None:
        body = frame.body
        doing: JsonObject = {"phase": str(body["phase"])}
        if body.get("pass") is not None:
            doing |= {"pass": str(body["pass"]), "step": int(body["step"])}
        self._doing = doing
        if self._phases is not None:
            self._phases.begin(doing["phase"])

    def _note_position(self, folder: Path) -> JsonObject:
        """Where the worker that is gone was, inside of its pass or build, too."""
        if self._doing["phase"] in ("pass", "build"):
            self._doing |= read_position(folder)
        return self._doing


def confinement_of(limits: Limits, folder: Path, tune_s: float = 0.0) -> Confinement:
    """What a compile worker may use, one that tunes for `tune_s` seconds on all cores if need be."""
    file_bytes = max(limits.library_bytes, limits.unpacked_bytes)
    seconds = limits.compile_cpu_s + math.ceil(tune_s) * _cores()
    return Confinement(limits.compile_memory_bytes, seconds, file_bytes, str(folder), COMPILE_FILES, worker_uid())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def frame_limits_of(limits: Limits) -> FrameLimits:
    """What a compile worker may send at once."""
    return FrameLimits(MAX_EVENT_JSON, max(limits.ir_bytes, MAX_KERNEL_BYTES))


def _checked_keys(keys: Any) -> list[str]:
    if not isinstance(keys, list) or len(keys) > MAX_KERNELS or not all(map(is_key, keys)):
        raise ValueError("these are no names of kernels")
    return keys


async def _link(pool: Pool, folder: Path, library: str, limits: Limits, objects: list[str]) -> Frame:
    """Links object files of the work folder; the answer for the compile worker.

    Raises Problem when the linker is lost.
    """
    if not set(objects) <= set(COMPILE_FILES) or not objects:
        _raise_unintelligible("it wants to link files that are not its own")
    try:
        await link(pool, folder, objects, library, limits)
    except BuildFailed as problem:
        return Frame({"event": "failed", "problem": problem.to_json()})
    return Frame({"event": "linked"})


def _raise_unintelligible(what: str) -> NoReturn:
    raise InternalError(f"The compile worker sent a message that makes no sense ({what}).")


def digest_of_library(path: Path, limit: int) -> str:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            _raise_unintelligible("its library is not a regular file")
        if status.st_size == 0:
            _raise_unintelligible("its library is empty")
        if status.st_size > limit:
            raise OutputTooLarge(
                f"The library has {status.st_size} bytes, the limit is {limit}. Send a smaller model, or let the "
                "operator raise RELAXD_LIBRARY_BYTES.",
                limit_bytes=limit,
            )
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InternalError(f"The compile worker left no library that can be read: {error.strerror}.") from error
