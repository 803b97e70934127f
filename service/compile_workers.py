"""Compile workers on loan: a new one for each Compilation, or one that was kept after another of the same model.

Such a one runs only what is new. It is stopped while it waits, so that it uses no CPU, and ends after a while, or when
others take its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from service.errors import CompilationProblem
from service.leftovers import remove
from service.nouns import CompileJob, Limits, PassSpec
from service.pool import Pool, Worker
from service.records import Request
from service.run import Run, confinement_of, digest_of_library, frame_limits_of
from service.store import Store
from service.tuning import Tuning, TuningRecord
from service.uninterrupted import uninterrupted
from service.work_folder import COMPILE_FILES, LIBRARIES, work_folder

KEPT = 2
KEPT_S = 120.0


@dataclass
class Lease:
    """A compile worker and its work folder, for one Compilation after another of the same model.

    `kind` is what these must have in common. `compilation` is the one that it ran last, `passes` those of its steps
    that the worker still has; both are empty in the beginning.
    """

    worker: Worker
    kind: bytes
    folder: Path
    resources: contextlib.ExitStack
    compilation: str | None = None
    passes: tuple[PassSpec, ...] = ()
    spent_s: float = 0.0
    uses: int = 0

    @property
    def library(self) -> str:
        """The file for the next library. Another one each time: the worker may have mapped those before."""
        return LIBRARIES[self.uses]

    def job(self, request: Request, limits: Limits, after: int | None, records: tuple[TuningRecord, ...]) -> CompileJob:
        """What the worker is told: the request, which step to go on `after`, and what is known of kernels."""
        return CompileJob(
            model_path="model",
            format=request.model.format,
            recipe=request.recipe,
            verify=request.verify,
            inputs=request.inputs,
            inputs_path=None if request.inputs_sha256 is None else "inputs.npz",
            work_dir=".",
            limits=limits,
            special_values=request.special_values,
            translator=request.translator,
            library=self.library,
            keep=request.keep,
            after=after,
            tuning=Tuning(request.tune_s, records),
        )

    def begin(self, compilation: str) -> None:
        """Notes that the worker is given to this Compilation."""
        self.compilation = compilation
        self.uses += 1

    def can_be_kept(self, limit_s: float) -> bool:
        """Whether another Compilation may follow: there is a file, half of its time, and a process left."""
        return self.uses < len(LIBRARIES) and self.spent_s < limit_s / 2 and not self.worker.exited.done()

    async def end(self) -> None:
        """Ends the worker and removes the folder."""
        try:
            await self.worker.end()
        finally:
            self.resources.close()


class KeptWorkers:
    """The few that wait. Methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: list[Lease] = []
        self._ending: set[asyncio.Task[None]] = set()

    def take(self, kind: bytes, passes: tuple[PassSpec, ...], key: str) -> tuple[Lease, int] | None:
        """The one of that kind which has most of the `passes` from the first on, and how many; None without one.

        Never one that has run the Compilation `key` itself: its steps are gone when it is run again.
        """
        fitting = [lease for lease in self._waiting if lease.kind == kind and lease.compilation != key]
        usable = [lease for lease in fitting if not lease.worker.exited.done()]
        if not usable:
            return None
        best = max(usable, key=lambda lease: common(lease.passes, passes))
        self._waiting.remove(best)
        best.worker.resume()
        return best, common(best.passes, passes)

    def keep(self, lease: Lease) -> None:
        """Lets a worker wait. The one that has waited longest ends when there are too many."""
        lease.worker.pause()
        self._waiting.append(lease)
        asyncio.get_running_loop().call_later(KEPT_S, self._expire, lease)
        while len(self._waiting) > KEPT:
            self._drop(self._waiting[0])

    def forget(self, compilation: str) -> None:
        """Ends the worker that ran this Compilation last, when it waits."""
        for lease in [each for each in self._waiting if each.compilation == compilation]:
            self._drop(lease)

    async def close(self) -> None:
        """Ends all that wait."""
        for lease in list(self._waiting):
            self._drop(lease)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _expire(self, lease: Lease) -> None:
        if lease in self._waiting:
            self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        self._waiting.remove(lease)
        task = asyncio.ensure_future(lease.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class CompileWorkers:
    """Lends workers to Compilations. Methods belong to the event loop's thread."""

    def __init__(self, pool: Pool, store: Store, limits: Limits) -> None:
        self._pool = pool
        self._store = store
        self._limits = limits
        self._kept = KeptWorkers()
        self._closing = False

    async def lease(self, key: str, request: Request) -> tuple[Lease, int | None]:
        """A kept worker and the step that it can go on after, or a new one and None. Raises Problem."""
        kept = self._kept.take(request.kind, request.recipe.passes, key)
        if kept is not None:
            return kept
        readable = {"model": await asyncio.to_thread(self._store.path, request.model.sha256)}
        if request.inputs_sha256 is not None:
            readable["inputs.npz"] = await asyncio.to_thread(self._store.path, request.inputs_sha256)
        with contextlib.ExitStack() as resources:
            folder = resources.enter_context(work_folder(self._store.scratch, readable, COMPILE_FILES))
            confinement = confinement_of(self._limits, folder, request.tune_s or 0.0)
            worker = await self._pool.fork("compile", confinement, frame_limits_of(self._limits))
            return Lease(worker, request.kind, folder, resources.pop_all()), None

    @contextlib.asynccontextmanager
    async def released(self, lease: Lease, request: Request, run: Run) -> AsyncIterator[None]:
        """Ends the worker after the body, or keeps it where the request says so and it has told how it ended."""
        told = False
        try:
            yield
            told = True
        except CompilationProblem:
            told = True
            raise
        finally:
            steps = run.compilation.steps
            lease.passes = request.recipe.passes[: max(len(steps) - 1, 0)]
            wanted = request.keep and told and bool(steps) and not self._closing
            if wanted and lease.can_be_kept(self._limits.compile_s):
                self._kept.keep(lease)
            else:
                await lease.end()

    async def adopt_library(self, lease: Lease, job: CompileJob) -> str:
        """Puts the library that a worker has left into the store, when it can no longer change it; its digest.

        Raises InternalError, OutputTooLarge, StorageFull.
        """
        library = lease.folder / job.library
        if job.keep:
            lease.worker.pause()
            # The worker may write to its own file again; the copy is ours.
            library = self._store.scratch / f"{lease.folder.name}-{job.library}"
            await uninterrupted(shutil.copyfile, lease.folder / job.library, library, follow_symlinks=False)
        else:
            await lease.worker.end()
        try:
            digest = await asyncio.to_thread(digest_of_library, library, self._limits.library_bytes)
            await uninterrupted(self._store.adopt, library, digest)
        finally:
            remove(library)
        return digest

    def forget(self, compilation: str) -> None:
        """Ends the kept worker that ran this Compilation last."""
        self._kept.forget(compilation)

    async def close(self) -> None:
        """Ends all kept workers, and keeps none from now on."""
        self._closing = True
        await self._kept.close()


def common(known: tuple[PassSpec, ...], wanted: tuple[PassSpec, ...]) -> int:
    """How many passes from the first on are the same, options too."""
    pairs = zip(known, wanted, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
