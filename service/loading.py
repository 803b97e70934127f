"""From the file of a library to a worker that has it loaded and a ring to ask it through."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.errors import JsonObject
from service.nouns import Confinement, Limits, Signature
from service.pool import Pool, Worker, WorkerGone, checked
from service.replica import lost, too_slow
from service.ring import Layout, Ring, create_descriptors
from service.wire import Frame, FrameLimits
from service.work_folder import LIBRARY, work_folder
from service.worker_user import worker_uid

# A zygote may have to start first.
FORK_S = 30.0


@dataclass(frozen=True)
class Loadable:
    """What it takes to load an Artifact: the id of its Compilation, its Signature, and where its library is.

    `library` checks the file; it is asked when the Artifact is loaded first. `is_there` tells, in the event loop's
    thread, whether the Compilation was not deleted meanwhile.
    """

    key: str
    signature: Signature
    library: Callable[[], Path]
    is_there: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Loaded:
    """A worker that is ready, its ring, how many rows it runs as one, and the bytes that it took for the Artifact."""

    worker: Worker
    ring: Ring
    batch_rows: int
    memory_bytes: int


class Loader:
    """Starts infer workers."""

    def __init__(self, pool: Pool, limits: Limits, scratch: Path) -> None:
        self._pool = pool
        self._limits = limits
        self._scratch = scratch

    async def load(self, signature: Signature, library: Path, batch_rows: int | None) -> Loaded:
        """A new worker with `library`; `batch_rows` is what an earlier one has found, None for the first.

        Raises DeadlineExceeded, WorkerLost, ExecutionFailed, InternalError, ShuttingDown.
        """
        layout = Layout(signature)
        descriptors = create_descriptors(layout)
        ring = Ring(layout, [os.dup(descriptors[0]), *descriptors[1:]])
        try:
            # The folder can go once the library is mapped.
            with work_folder(self._scratch, {LIBRARY: library}, ()) as folder:
                worker = await self._fork(folder, descriptors)
                request: JsonObject = {
                    "op": "load",
                    "library_path": f"./{LIBRARY}",
                    "signature": signature.to_json(),
                    "batch_rows": batch_rows,
                    "max_queue_delay_ms": self._limits.max_queue_delay_ms,
                }
                return await self._ready(worker, request, ring, library)
        except BaseException:
            ring.close()
            raise
        finally:
            os.close(descriptors[0])

    async def _fork(self, folder: Path, descriptors: tuple[int, int, int]) -> Worker:
        # It serves for as long as it is loaded: no limit to its CPU time in all, a deadline for each request.
        confinement = Confinement(self._limits.infer_memory_bytes, 1 << 30, 0, str(folder), (), worker_uid())
        seconds = max(self._limits.infer_s, FORK_S)
        try:
            async with asyncio.timeout(seconds):
                return await self._pool.fork("infer", confinement, FrameLimits(), descriptors)
        except TimeoutError as error:
            raise too_slow("Starting a worker", seconds) from error

    async def _ready(self, worker: Worker, request: JsonObject, ring: Ring, library: Path) -> Loaded:
        before = private_bytes(worker.pid)
        try:
            async with asyncio.timeout(self._limits.infer_s):
                await worker.send(Frame(request))
                ready = checked(await worker.receive(), "ready").body
        except BaseException as error:
            if isinstance(error, WorkerGone):
                raise lost(await worker.fate("while it loaded the artifact")) from error
            await worker.end()
            if isinstance(error, TimeoutError):
                raise too_slow("Loading the artifact", self._limits.infer_s) from error
            raise
        rows = ready.get("batch_rows")
        taken = max(0, private_bytes(worker.pid) - before) + library.stat().st_size
        return Loaded(worker, ring, rows if isinstance(rows, int) and 0 < rows <= 1 << 16 else 1, taken)


def private_bytes(pid: int) -> int:
    """The memory of a process that is no file's and not shared, as the kernel counts it; 0 where it is gone."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGESIZE")
