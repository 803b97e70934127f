"""Compilations from request to record: found by key, shared by twins, admitted, run, kept, cancelled, deleted."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from service import keys
from service.admission import Admission
from service.catalogue import Catalogue
from service.compile_workers import CompileWorkers, Lease
from service.errors import (
    InternalError,
    Interrupted,
    JsonObject,
    Problem,
    ShuttingDown,
    StorageFull,
    StoreDamaged,
    UnknownCompilation,
)
from service.full_disk import FULL_DISK
from service.journal import Journal
from service.kernel_store import KernelStore
from service.nouns import Limits, State, Step
from service.pool import Pool
from service.records import Artifact, Compilation, Request, now
from service.run import CallersKernels, Run
from service.store import Store
from service.tuning import TuningProgress, TuningRecord
from service.tuning_database import TuningDatabase, machine_type
from service.uninterrupted import uninterrupted

log = logging.getLogger(__name__)

# Snapshots are text that repeats itself: the fastest level makes a tenth of it.
_COMPRESSION = 1


class Compilations:
    """All Compilations of this server. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        journal: Journal,
        store: Store,
        pool: Pool,
        limits: Limits,
        database: TuningDatabase,
        kernels: KernelStore | None = None,
    ) -> None:
        self._journal = journal
        self._database = database
        self._store = store
        self._pool = pool
        self._limits = limits
        self.kernels = kernels
        self._admission = Admission(limits)
        self._runs: dict[str, tuple[Run, asyncio.Task[None]]] = {}
        self._pins: Counter[str] = Counter()
        self._unrecorded: dict[str, Compilation] = {}
        self._workers = CompileWorkers(pool, store, limits)
        self._closing = False
        # What was asked for since this was emptied last.
        self.used: set[str] = set()
        # Since the server started: ended Compilations by state and type of problem, CPU ms by phase.
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.cpu_ms: Counter[str] = Counter()

    def recover(self) -> None:
        """After a start: what was running is failed with `interrupted`, objects that nothing needs are deleted."""
        for compilation in self._journal.unfinished():
            problem = Interrupted(
                f"The server stopped while the compilation was {compilation.state.value}. Send the request again."
            )
            self._journal.update(_failed(compilation, problem))
            log.warning("compilation %s was interrupted", compilation.id)
        for digest in self._store.digests() - self._journal.objects():
            self._store.delete(digest)

    async def _toolchain(self) -> JsonObject:
        toolchain: JsonObject = (await self._pool.zygote("compile")).announcement["toolchain"]
        return toolchain

    async def is_new(self, request: Request) -> bool:
        """Whether the request would start a Compilation, rather than join or find one. Raises InternalError."""
        key = request.key(await self._toolchain())
        known = self._journal.get(key)
        return key not in self._runs and (known is None or known.state is not State.SUCCEEDED)

    async def catalogue(self) -> Catalogue:
        """What the compile worker offers. Waits until it has started. Raises InternalError."""
        zygote = await self._pool.zygote("compile")
        return Catalogue.from_json(zygote.announcement["catalogue"])

    def known_catalogue(self) -> Catalogue | None:
        """The same without waiting; None when the worker has not started yet."""
        announcement = self._pool.announcement("compile")
        return None if announcement is None else Catalogue.from_json(announcement["catalogue"])

    async def submit(self, request: Request) -> tuple[Compilation, bool]:
        """The Compilation for a request, and whether this request started it.

        An earlier success answers at once, a twin that is running is joined; a failed, cancelled or interrupted one
        is run again in its place. Raises Overloaded, ShuttingDown, StorageFull, InternalError.
        """
        try:
            toolchain = await self._toolchain()
            key = request.key(toolchain)
            caller = keys.current.get()
            if caller is not None:
                await uninterrupted(self._journal.claim, key, caller.name)
            found = await self._find(key)
            if found is None:
                return self._admit(key, request, toolchain), True
        except BaseException:
            request.discard()
            raise
        request.discard()
        await uninterrupted(self._journal.touch, key)
        return found, False

    async def _find(self, key: str) -> Compilation | None:
        """A running twin or an earlier success whose library is whole."""
        if key not in self._runs:
            known = self._journal.get(key)
            if known is not None and known.state is State.SUCCEEDED and known.artifact is None:
                return known
            if known is not None and known.state is State.SUCCEEDED and known.artifact is not None:
                try:
                    await asyncio.to_thread(self._store.path, known.artifact.library_sha256)
                except StoreDamaged:
                    log.exception("the library of compilation %s is damaged, compiling it again", key)
                    self._store.delete(known.artifact.library_sha256)
                else:
                    return known
        return self._runs[key][0].compilation if key in self._runs else None

    def _admit(self, key: str, request: Request, toolchain: JsonObject) -> Compilation:
        if self._closing:
            raise ShuttingDown("The server is shutting down. Send the request again in a moment.", retry_after_s=5)
        current = keys.current.get()
        caller = None if current is None else current.name
        self._admission.admit(caller)
        compilation = Compilation(
            key,
            State.QUEUED,
            now(),
            request.model,
            request.recipe,
            request.verify,
            request.special_values,
            inputs=request.inputs,
            translator=request.translator,
            inputs_sha256=request.inputs_sha256,
            toolchain=toolchain,
            tuning=None if request.tune_s is None else TuningProgress(request.tune_s, request.tune_s),
        )
        run = Run(compilation, self._limits)
        self._unrecorded.pop(key, None)
        # No await since `_find`: a twin that arrives from here on joins this run.
        task = asyncio.create_task(self._run(run, request, caller), name=f"compilation-{key}")
        task.add_done_callback(lambda _: self._conclude(run, request, caller))
        self._runs[key] = (run, task)
        return compilation

    async def _run(self, run: Run, request: Request, caller: str | None) -> None:
        try:
            with self._pinned(request):
                await self._keep_request(run, request)
                async with self._admission.running(caller):
                    run.compilation = dataclasses.replace(run.compilation, state=State.RUNNING, started_at=now())
                    await uninterrupted(self._journal.update, run.compilation)
                    await self._compile(run, request, caller)
        except Problem as problem:
            run.compilation = _failed(run.compilation, problem)
        except (OSError, sqlite3.Error) as error:
            if not _is_full(error):
                log.exception("compilation %s failed in a way that was not foreseen", run.compilation.id)
            full = StorageFull("The server's disk has no room. Delete compilations, or ask the operator.")
            other = InternalError("The server met an error; its log has it.")
            run.compilation = _failed(run.compilation, full if _is_full(error) else other)
        except Exception:
            log.exception("compilation %s failed in a way that was not foreseen", run.compilation.id)
            run.compilation = _failed(run.compilation, InternalError("The server met an error; its log has it."))

    def _conclude(self, run: Run, request: Request, caller: str | None) -> None:
        """Called when the task has ended, however: a task that is cancelled before its first step runs nothing."""
        self._admission.leave(caller)
        request.discard()
        if not run.compilation.state.ended and self._closing:
            run.compilation = _failed(run.compilation, Interrupted("The server was stopped meanwhile. Send it again."))
        elif not run.compilation.state.ended:
            run.compilation = dataclasses.replace(run.compilation, state=State.CANCELLED, ended_at=now())
        try:
            if run.recorded:
                artifact = run.compilation.artifact
                self._journal.update(run.compilation, [] if artifact is None else [artifact.library_sha256])
            else:
                self._journal.begin(run.compilation, [])
        except Exception:
            log.exception("the end of compilation %s could not be recorded", run.compilation.id)
            # Its record says that it runs, and will until the next start: this server knows better.
            self._unrecorded[run.compilation.id] = run.compilation
        finally:
            self._count(run.compilation)
            del self._runs[run.compilation.id]
            run.ended.set()
            run.note_progress()

    def _count(self, compilation: Compilation) -> None:
        problem = str((compilation.problem or {}).get("type", "")).removeprefix("/problems/")
        self.outcomes[compilation.state.value, problem] += 1
        for timing in compilation.timings:
            self.cpu_ms[str(timing["phase"])] += round(timing["cpu_ms"])

    async def _keep_request(self, run: Run, request: Request) -> None:
        if request.model_file is not None:
            await uninterrupted(self._store.adopt, request.model_file, request.model.sha256)
        objects = [request.model.sha256]
        if request.inputs_file is not None and request.inputs_sha256 is not None:
            await uninterrupted(self._store.adopt, request.inputs_file, request.inputs_sha256)
            objects.append(request.inputs_sha256)
        # A new attempt takes the place of an earlier one, and of what only that needed.
        earlier = self._journal.objects(run.compilation.id)
        await uninterrupted(self._journal.begin, run.compilation, objects)
        run.recorded = True
        self._collect(earlier)

    async def _compile(self, run: Run, request: Request, caller: str | None) -> None:
        key = run.compilation.id

        async def keep_step(step: Step, snapshot: bytes) -> None:
            digest = await uninterrupted(lambda: self._store.put(zlib.compress(snapshot, _COMPRESSION)))
            await uninterrupted(self._journal.add_step, key, step, digest)

        async def keep_record(record: TuningRecord) -> None:
            await uninterrupted(self._database.keep, machine, record)

        machine = machine_type(run.compilation.toolchain, request.recipe.target)
        lease, after = await self._workers.lease(key, request)
        if after is not None:
            await self._take_over(run, lease, after)
        async with self._workers.released(lease, request, run):
            known = await asyncio.to_thread(self._database.records, machine)
            job = lease.job(request, self._limits, after, known)
            lease.begin(key)
            kernels = CallersKernels(self.kernels, caller or "")
            closing = await run.execute(self._pool, job, lease, keep_step, keep_record, kernels)
            library = await self._workers.adopt_library(lease, job) if closing["manifest"] is not None else None
        tuning = {"tuning": [record.to_json() for record in run.compilation.tuning_records]}
        artifact = None if library is None else Artifact(library, closing["manifest"] | tuning)
        run.compilation = dataclasses.replace(
            run.compilation,
            state=State.SUCCEEDED,
            ended_at=now(),
            timings=tuple(closing["timings"]),
            verification=closing["verification"],
            artifact=artifact,
        )

    async def _take_over(self, run: Run, lease: Lease, after: int) -> None:
        """Gives the Compilation the steps up to `after` of the one that the worker ran last."""
        earlier = self.shared(str(lease.compilation))
        steps = earlier.steps[: after + 1]
        digests = [self._journal.snapshot(earlier.id, step.index) for step in steps]
        known = [digest for digest in digests if digest is not None]
        self._pins.update(known)
        try:
            for step, digest in zip(steps, known, strict=True):
                await uninterrupted(self._journal.add_step, run.compilation.id, step, digest)
        finally:
            self._pins.subtract(known)
        run.compilation = dataclasses.replace(
            run.compilation, signature=earlier.signature, steps=steps, reused_steps=len(steps)
        )

    def get(self, key: str) -> Compilation:
        """As it stands now. One that the caller has not submitted is as unknown as any. Raises UnknownCompilation."""
        caller = keys.current.get()
        if caller is None or caller.may("admin") or self._journal.is_claimed(key, caller.name):
            return self.shared(key)
        raise UnknownCompilation(f"No compilation has the id {key!r}. GET /compile lists them.", id=key)

    def shared(self, key: str) -> Compilation:
        """As `get`, whoever has submitted it: for what is published. Raises UnknownCompilation."""
        if key in self._runs:
            return self._runs[key][0].compilation
        compilation = self._unrecorded.get(key) or self._journal.get(key)
        if compilation is None:
            raise UnknownCompilation(f"No compilation has the id {key!r}. GET /compile lists them.", id=key)
        self.used.add(key)
        return compilation

    def latest(self) -> Compilation:
        """The one that was asked for last. Raises UnknownCompilation when there is none yet."""
        key = self._journal.latest(_only_of())
        if key is None:
            raise UnknownCompilation("There is no compilation yet. POST /compile makes one.")
        return self.get(key)

    def newest(self, limit: int) -> list[str]:
        """The ids of the newest ones, the latest first."""
        return self._journal.ids(limit, _only_of())

    async def wait(self, key: str, seconds: float) -> Compilation:
        """The Compilation when it has ended or the time is over. Raises UnknownCompilation."""
        self.get(key)
        if key in self._runs and seconds > 0:
            run = self._runs[key][0]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(run.ended.wait(), seconds)
            return run.compilation
        return self.get(key)

    async def progress(self, key: str) -> None:
        """Returns when a step has been added to a Compilation that runs, or it has ended."""
        if key in self._runs:
            await self._runs[key][0].progress()

    async def delete(self, key: str) -> None:
        """Cancels a Compilation that has not ended, deletes one that has. Raises UnknownCompilation.

        Of one that another caller has submitted, too, the caller's claim alone is deleted.
        """
        self.get(key)
        caller = keys.current.get()
        if caller is not None and await uninterrupted(self._journal.release, key, caller.name):
            return
        if key in self._runs:
            run, task = self._runs[key]
            task.cancel()
            await run.ended.wait()
            return
        await self.forget(key)

    async def forget(self, key: str) -> None:
        """Deletes one that has ended, with all that belongs to it alone, whoever has submitted it."""
        self._workers.forget(key)
        objects = self._journal.objects(key)
        if await uninterrupted(self._journal.delete, key):
            self._collect(objects)

    async def add_result(self, key: str, result: Step, snapshot: bytes) -> Compilation:
        """Keeps one more result of the build of one that has ended. Raises UnknownCompilation, StorageFull."""
        digest = await uninterrupted(lambda: self._store.put(zlib.compress(snapshot, _COMPRESSION)))
        self.get(key)
        await uninterrupted(self._journal.add_step, key, result, digest)
        return self.get(key)

    async def snapshot(self, key: str, step: int) -> JsonObject:
        """Text and structure of the IR after a step that the Compilation has. Raises StoreDamaged."""
        return await asyncio.to_thread(next, self.snapshots(key, [step]))

    def snapshots(self, key: str, steps: Iterable[int]) -> Iterator[JsonObject]:
        """As `snapshot`, one after the other, each read when its turn comes, in any thread. Raises StoreDamaged."""
        digests = [self._journal.snapshot(key, step) for step in steps]
        if None in digests:
            raise StoreDamaged("The snapshot of a step is not recorded. Send the request again.", id=key)
        return (json.loads(zlib.decompress(self._store.read(digest))) for digest in digests if digest is not None)

    def uploaded(self, compilation: Compilation) -> dict[str, Path]:
        """The files of its request: `model`, and `inputs.npz` where there was one, checked. Raises StoreDamaged."""
        files = {"model": self._store.path(compilation.model.sha256)}
        if compilation.inputs_sha256 is not None:
            files["inputs.npz"] = self._store.path(compilation.inputs_sha256)
        return files

    def library(self, artifact: Artifact) -> Path:
        """The file of an Artifact's library, checked. Raises StoreDamaged."""
        return self._store.path(artifact.library_sha256)

    def runs(self, key: str) -> bool:
        """Whether it is running or waiting now."""
        return key in self._runs

    def counts(self) -> dict[str, int]:
        """How many are running and waiting now."""
        running = sum(run.compilation.state is State.RUNNING for run, _ in self._runs.values())
        return {"running": running, "queued": len(self._runs) - running}

    async def close(self) -> None:
        """Stops what is running; it is recorded as interrupted."""
        self._closing = True
        tasks = [task for _, task in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._workers.close()

    @contextlib.contextmanager
    def _pinned(self, request: Request) -> Iterator[None]:
        digests = [digest for digest in (request.model.sha256, request.inputs_sha256) if digest is not None]
        self._pins.update(digests)
        try:
            yield
        finally:
            self._pins.subtract(digests)

    def _collect(self, digests: set[str]) -> None:
        for digest in digests:
            if self._pins[digest] <= 0 and not self._journal.needs(digest):
                self._store.delete(digest)


def _only_of() -> str | None:
    """Whose Compilations the caller sees; None for all."""
    caller = keys.current.get()
    return None if caller is None or caller.may("admin") else caller.name


def _failed(compilation: Compilation, problem: Problem) -> Compilation:
    if isinstance(problem, StorageFull):
        log.error("compilation %s: %s", compilation.id, problem.detail)
    return dataclasses.replace(compilation, state=State.FAILED, ended_at=now(), problem=problem.to_json())


def _is_full(error: Exception) -> bool:
    return "full" in str(error) if isinstance(error, sqlite3.Error) else getattr(error, "errno", None) in FULL_DISK
