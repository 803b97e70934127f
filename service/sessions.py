"""Artifacts loaded in infer workers: replicas of each, a bounded queue, the least recently used unloaded first."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.errors import InternalError, Overloaded, Problem, ShuttingDown, UnknownCompilation
from service.loading import Loadable, Loader
from service.nouns import Limits
from service.pool import Pool
from service.replica import Call, Outcome, Replica, timed_out
from service.request_log import current_id
from service.ring import RawTensor

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Session:
    """One Artifact that is loaded or being loaded: its replicas, and the calls that none of them has room for yet."""

    loadable: Loadable
    wanted: int
    replicas: list[Replica] = field(default_factory=list)
    loading: set[asyncio.Task[None]] = field(default_factory=set)
    queue: deque[Call] = field(default_factory=deque)
    # Found by the first load, for those after it: the checked file, and how many rows run as one.
    library: Path | None = None
    batch_rows: int | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def waiting(self) -> int:
        """How many calls are not answered yet."""
        total = len(self.queue)
        for replica in self.replicas:
            total += replica.busy
        return total

    @property
    def memory_bytes(self) -> int:
        """What its workers took to load it."""
        return sum(replica.memory_bytes for replica in self.replicas)

    def with_room(self) -> Replica | None:
        """The replica with the fewest calls of those that can take another."""
        if len(self.replicas) == 1:
            (only,) = self.replicas
            return only if only.has_room else None
        free = [replica for replica in self.replicas if replica.has_room]
        return min(free, key=lambda replica: replica.busy, default=None)


class Sessions:
    """Runs Artifacts by the id of their Compilation, loading them on first use. For the event loop's thread."""

    def __init__(self, pool: Pool, limits: Limits, scratch: Path) -> None:
        self._loader = Loader(pool, limits, scratch)
        self._limits = limits
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def run(self, loadable: Loadable, inputs: list[RawTensor], timeout_us: int | None = None) -> Outcome:
        """The outputs for `inputs`, which must match the Signature.

        Raises Overloaded, ShuttingDown, RequestTimedOut, DeadlineExceeded, WorkerLost, StoreDamaged, InternalError, and
        what the model says of its inputs: ExecutionFailed, CheckFailed, IndexOutOfRange.
        """
        future: asyncio.Future[Outcome | Problem] = asyncio.get_running_loop().create_future()
        call = self.submit(loadable, inputs, future.set_result, timeout_us, current_id())
        try:
            outcome = await future
        finally:
            call.abandon()
        if isinstance(outcome, Problem):
            raise outcome
        return outcome

    def submit(
        self,
        loadable: Loadable,
        inputs: list[RawTensor],
        settle: Callable[[Outcome | Problem], None],
        timeout_us: int | None = None,
        request_id: str = "",
    ) -> Call:
        """As `run`, without waiting: `settle` gets the outcome, once, in a later turn of the loop.

        Raises Overloaded, ShuttingDown.
        """
        session = self._session(loadable)
        self._check_queue(session)
        call = Call(inputs, settle, request_id=request_id)
        if timeout_us is not None:
            call.deadline_ns = time.monotonic_ns() + timeout_us * 1000
            call.timer = asyncio.get_running_loop().call_later(timeout_us / 1e6, lambda: call.finish(timed_out()))
        session.idle.clear()
        replica = None if session.queue else session.with_room()
        if replica is not None:
            replica.take(call)
        else:
            session.queue.append(call)
            self._load_missing(session)
        return call

    async def preload(self, loadable: Loadable, replicas: int | None = None) -> None:
        """Loads an Artifact before it is asked for; `replicas` changes how many it has from now on. Raises as `run`."""
        session = self._session(loadable)
        if replicas is not None:
            session.wanted = replicas
        for surplus in session.replicas[session.wanted :]:
            session.replicas.remove(surplus)
            self._spawn(_end_idle(surplus))
        self._load_missing(session)
        while session.loading:
            # A Problem of loading is raised here; that of a worker that ends later is for its own callers.
            await asyncio.gather(*(asyncio.shield(task) for task in session.loading))

    def unload(self, key: str) -> None:
        """Ends the workers of that Compilation's Artifact, when those who use it now have their answers."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._spawn(self._drain(session))

    def is_loaded(self, key: str) -> bool:
        """Whether that Compilation's Artifact is loaded or being loaded."""
        return key in self._sessions

    def loaded(self) -> int:
        """How many Artifacts are loaded or being loaded."""
        return len(self._sessions)

    def sessions(self) -> list[Session]:
        """Those that are loaded or being loaded, the one that was used last at the end."""
        return list(self._sessions.values())

    async def close(self) -> None:
        """Answers what has been asked, then ends all workers."""
        self._closing = True
        for key in list(self._sessions):
            self.unload(key)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _session(self, loadable: Loadable) -> Session:
        session = self._sessions.get(loadable.key)
        if session is not None:
            self._sessions.move_to_end(loadable.key)
            return session
        if self._closing:
            raise ShuttingDown("The server is shutting down. Send the request again in a moment.", retry_after_s=5)
        session = self._sessions[loadable.key] = Session(loadable, self._limits.replicas)
        self._unload_surplus()
        return session

    def _check_queue(self, session: Session) -> None:
        limit = self._limits.queued_inferences
        if session.waiting < limit:
            return
        session.queue = deque(call for call in session.queue if not call.settled)
        if session.waiting >= limit:
            raise Overloaded(
                f"{session.waiting} requests wait for this model, the limit is {limit}. Send the request later.",
                limit=limit,
                retry_after_s=1,
            )

    def _load_missing(self, session: Session) -> None:
        while len(session.replicas) + len(session.loading) < session.wanted:
            task = self._spawn(self._load(session))
            session.loading.add(task)
            task.add_done_callback(lambda task: self._after_load(session, task))

    async def _load(self, session: Session) -> None:
        if session.library is None:
            session.library = await asyncio.to_thread(session.loadable.library)
        loaded = await self._loader.load(session.loadable.signature, session.library, session.batch_rows)
        session.batch_rows = loaded.batch_rows
        replica = Replica(
            loaded.worker,
            loaded.ring,
            self._limits,
            on_answers=lambda: self._serve(session),
            on_end=lambda: self._replace(session, replica),
            memory_bytes=loaded.memory_bytes,
        )
        session.replicas.append(replica)

    def _after_load(self, session: Session, task: asyncio.Task[None]) -> None:
        session.loading.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not session.loadable.is_there():
            key = session.loadable.key
            error = UnknownCompilation(f"No compilation has the id {key!r}: it was deleted meanwhile.", id=key)
        if error is not None and not isinstance(error, Problem):
            log.error("an artifact could not be loaded", exc_info=error)
            error = InternalError("The artifact could not be loaded; the server's log has the error.")
        if error is not None and not session.replicas and not session.loading:
            self._forget(session)
            ids = ", ".join(call.request_id for call in session.queue) or "none"
            log.warning("artifact %s was not loaded: %s Requests: %s", session.loadable.key, error.detail, ids)
            while session.queue:
                session.queue.popleft().finish(error)
        self._serve(session)
        self._unload_surplus()

    def _serve(self, session: Session) -> None:
        """Moves calls from the queue to replicas with room."""
        while session.queue:
            if session.queue[0].settled:
                session.queue.popleft()
            elif (replica := session.with_room()) is not None:
                replica.take(session.queue.popleft())
            else:
                break
        if session.waiting == 0:
            session.idle.set()

    def _replace(self, session: Session, replica: Replica) -> None:
        """Called when a worker is no more: another takes its place, unless it has never been of use."""
        if replica in session.replicas:
            session.replicas.remove(replica)
        self._spawn(replica.end())
        is_used = replica.answered > 0 and self._sessions.get(session.loadable.key) is session
        if session.queue or (is_used and not self._closing):
            self._load_missing(session)
        elif not session.replicas and not session.loading:
            self._forget(session)
        self._serve(session)

    def _forget(self, session: Session) -> None:
        if self._sessions.get(session.loadable.key) is session:
            del self._sessions[session.loadable.key]

    def _unload_surplus(self) -> None:
        """Unloads what was used least recently and is idle, as far as there is too much of it; never the last one."""
        for key in list(self._sessions)[:-1]:
            memory = sum(session.memory_bytes for session in self._sessions.values())
            if len(self._sessions) <= self._limits.loaded_sessions and memory <= self._limits.loaded_bytes:
                return
            if self._sessions[key].waiting == 0 and not self._sessions[key].loading:
                self.unload(key)

    async def _drain(self, session: Session) -> None:
        self._serve(session)
        await session.idle.wait()
        for task in list(session.loading):
            task.cancel()
        await asyncio.gather(*session.loading, return_exceptions=True)
        await asyncio.gather(*(replica.end() for replica in list(session.replicas)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # In a context of its own: what it does is for all callers, and not for the request that came first.
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _end_idle(replica: Replica) -> None:
    while replica.busy:
        await asyncio.sleep(0.01)
    await replica.end()
