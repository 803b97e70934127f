"""Artifacts loaded in infer workers: one process each, the least recently used unloaded first."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from service.errors import DeadlineExceeded, InternalError, JsonObject, Overloaded, Problem
from service.nouns import Confinement, Limits
from service.pool import Pool, Worker, WorkerGone, checked
from service.wire import Frame, FrameLimits
from service.work_folder import LIBRARY, work_folder
from service.worker_user import worker_uid

log = logging.getLogger(__name__)

MAX_WAITING = 256
# A zygote may have to start first.
FORK_S = 30.0

# The dtypes that cross the wire, by numpy's name.
ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class RawTensor:
    """Numbers on their way to or from a worker: numpy's dtype name, shape, C-ordered little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


@dataclass
class Session:
    """One loaded Artifact."""

    worker: asyncio.Task[Worker]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """Lends out loaded Artifacts by the id of their Compilation, loading them on first use."""

    def __init__(self, pool: Pool, limits: Limits, scratch: Path) -> None:
        self._pool = pool
        self._scratch = scratch
        self._limits = limits
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, key: str, library: Callable[[], Path], inputs: list[RawTensor]) -> list[RawTensor]:
        """The outputs for `inputs`, which must match the Signature. One call at a time for each Artifact.

        `library` is asked for the file only when the Artifact is not loaded. Raises Overloaded, DeadlineExceeded,
        ExecutionFailed, WorkerCrashed, WorkerKilled, InternalError, StoreDamaged.
        """
        session = self._session(key, library)
        if session.users >= MAX_WAITING:
            raise Overloaded(
                f"{session.users} requests wait for this model, the limit is {MAX_WAITING}. Send the request later.",
                limit=MAX_WAITING,
                retry_after_s=1,
            )
        session.users += 1
        session.idle.clear()
        try:
            self._unload_surplus()
            worker = await asyncio.shield(session.worker)
            async with session.lock:
                return await self._exchange(worker, inputs)
        except (Problem, WorkerGone, asyncio.CancelledError):
            if _has_ended(session) and self._sessions.get(key) is session:
                del self._sessions[key]
            raise
        finally:
            session.users -= 1
            if session.users == 0:
                session.idle.set()

    async def preload(self, key: str, library: Callable[[], Path]) -> None:
        """Loads an Artifact before it is asked for. Raises as `run`."""
        session = self._session(key, library)
        self._unload_surplus()
        try:
            await asyncio.shield(session.worker)
        except Problem:
            if self._sessions.get(key) is session:
                del self._sessions[key]
            raise

    def _session(self, key: str, library: Callable[[], Path]) -> Session:
        session = self._sessions.get(key)
        if session is None or _has_ended(session):
            session = self._sessions[key] = Session(asyncio.create_task(self._load(library)))
        self._sessions.move_to_end(key)
        return session

    async def _load(self, library: Callable[[], Path]) -> Worker:
        path = await asyncio.to_thread(library)
        # The folder can go once the library is mapped.
        with work_folder(self._scratch, {LIBRARY: path}, ()) as folder:
            # It serves for as long as it is loaded: no limit to its CPU time in all, a deadline for each request.
            confinement = Confinement(self._limits.infer_memory_bytes, 1 << 30, 0, str(folder), (), worker_uid())
            try:
                async with asyncio.timeout(max(self._limits.infer_s, FORK_S)):
                    worker = await self._pool.fork("infer", confinement, FrameLimits())
            except TimeoutError as error:
                raise _too_slow("Starting a worker", max(self._limits.infer_s, FORK_S)) from error
            try:
                async with asyncio.timeout(self._limits.infer_s):
                    await worker.send(Frame({"op": "load", "library_path": f"./{LIBRARY}"}))
                    checked(await worker.receive(), "ready")
            except BaseException as error:
                if isinstance(error, WorkerGone):
                    raise await worker.fate("while it loaded the artifact") from error
                await worker.end()
                if isinstance(error, TimeoutError):
                    raise _too_slow("Loading the artifact", self._limits.infer_s) from error
                raise
        return worker

    async def _exchange(self, worker: Worker, inputs: list[RawTensor]) -> list[RawTensor]:
        if worker.exited.done():
            raise await worker.fate("before the request reached it")
        request = Frame(
            {"op": "run", "inputs": [{"dtype": tensor.dtype, "shape": list(tensor.shape)} for tensor in inputs]},
            tuple(tensor.data for tensor in inputs),
        )
        try:
            async with asyncio.timeout(self._limits.infer_s):
                await worker.send(request)
                frame = await worker.receive()
        except BaseException as error:
            # Whatever it was, an answer may still be on its way: this worker must not see another request.
            if isinstance(error, WorkerGone):
                raise await worker.fate("during an inference") from error
            worker.kill()
            if isinstance(error, TimeoutError):
                await worker.end()
                raise _too_slow("The inference", self._limits.infer_s) from error
            raise
        try:
            return _tensors(checked(frame, "result"))
        except InternalError:
            worker.kill()
            await worker.end()
            raise

    def _unload_surplus(self) -> None:
        surplus = len(self._sessions) - self._limits.loaded_sessions
        for key in list(self._sessions):
            if surplus <= 0:
                return
            if self._sessions[key].users == 0:
                self.unload(key)
                surplus -= 1

    def unload(self, key: str) -> None:
        """Ends the worker of that Compilation's Artifact, when those who use it now have their answers."""
        session = self._sessions.pop(key, None)
        if session is not None:
            task = asyncio.create_task(_end(session))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def is_loaded(self, key: str) -> bool:
        """Whether that Compilation's Artifact is loaded or being loaded."""
        return key in self._sessions

    def loaded(self) -> int:
        """How many Artifacts are loaded or being loaded."""
        return len(self._sessions)

    async def close(self) -> None:
        """Ends all workers."""
        for key in list(self._sessions):
            self.unload(key)
        await asyncio.gather(*self._ending, return_exceptions=True)


def _has_ended(session: Session) -> bool:
    if not session.worker.done():
        return False
    return session.worker.cancelled() or session.worker.exception() is not None or session.worker.result().exited.done()


async def _end(session: Session) -> None:
    if session.users > 0:
        await session.idle.wait()
    session.worker.cancel()
    try:
        worker = await session.worker
    except (Problem, asyncio.CancelledError):
        return
    await worker.end()


def _tensors(frame: Frame) -> list[RawTensor]:
    try:
        specs: list[JsonObject] = frame.body["outputs"]
        tensors = [
            RawTensor(str(spec["dtype"]), tuple(map(int, spec["shape"])), blob)
            for spec, blob in zip(specs, frame.blobs, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _unintelligible(repr(error)) from error
    for tensor in tensors:
        size = ITEM_BYTES.get(tensor.dtype)
        if size is None or min(tensor.shape, default=0) < 0 or math.prod(tensor.shape) * size != len(tensor.data):
            raise _unintelligible(f"{len(tensor.data)} bytes for {tensor.dtype[:20]} {tensor.shape}")
    return tensors


def _unintelligible(what: str) -> InternalError:
    return InternalError(f"The infer worker sent a message that makes no sense ({what[:200]}).")


def _too_slow(what: str, limit: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"{what} was stopped after its limit of {math.floor(limit)} s. Send a smaller batch, or let the operator "
        "raise RELAXD_INFER_S.",
        limit_s=limit,
    )
