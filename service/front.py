"""``python -m service.front TERMS``: a web process beside the first one, which starts it (`fronts`).

It answers inferences with infer workers of its own, from the journal and the store of the first process, which it only
reads. TERMS is JSON: the Settings, and the descriptors that it has inherited.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from service import keys
from service.acceptor import Acceptor
from service.api.access import Gate
from service.api.door import Door
from service.channel import Channel, in_memory
from service.errors import InternalError, JsonObject, Problem, UnknownCompilation
from service.freed_memory import keep_giving_back
from service.front_lane import FrontLane
from service.journal import JournalReader
from service.keys import Keys
from service.pool import Pool
from service.publications import Finder
from service.rates import Rates, SharedBuckets
from service.records import Artifact, Compilation
from service.request_log import RequestLog, configure_logging
from service.sessions import Sessions
from service.settings import Settings
from service.statistics import Statistics
from service.store import StoreReader, open_reader

# How often the first process is told what was counted, without being asked.
TELL_S = 1.0


class Recorded:
    """The Compilations of the first process, as its journal has them; what was used is noted."""

    def __init__(self, journal: JournalReader, store: StoreReader, on_load: Callable[[], None]) -> None:
        """`on_load` is called when a library is about to be loaded, in any thread."""
        self._journal = journal
        self._store = store
        self._on_load = on_load
        self.used: set[str] = set()

    def get(self, key: str) -> Compilation:
        """As `Compilations.get`. Raises UnknownCompilation."""
        caller = keys.current.get()
        if caller is None or caller.may("admin") or self._journal.is_claimed(key, caller.name):
            return self.shared(key)
        raise UnknownCompilation(f"No compilation has the id {key!r}.", id=key)

    def shared(self, key: str) -> Compilation:
        """As `Compilations.shared`. Raises UnknownCompilation."""
        compilation = self._journal.get(key)
        if compilation is None:
            raise UnknownCompilation(f"No compilation has the id {key!r}.", id=key)
        self.used.add(key)
        return compilation

    def library(self, artifact: Artifact) -> Path:
        """As `Compilations.library`. Raises StoreDamaged."""
        self._on_load()
        return self._store.path(artifact.library_sha256)


@dataclass(frozen=True)
class FrontServices:
    """What an inference needs (`InferenceServices`), and what the first process is told."""

    settings: Settings
    publications: Finder
    sessions: Sessions
    statistics: Statistics
    recorded: Recorded

    def told(self) -> JsonObject:
        """What was counted, is loaded and was used."""
        loaded = {
            session.loadable.key: (session.waiting, len(session.replicas), session.memory_bytes)
            for session in self.sessions.sessions()
        }
        used, self.recorded.used = self.recorded.used, set()
        zygotes = _children(os.getpid())
        processes = [*zygotes, *(pid for zygote in zygotes for pid in _children(zygote))]
        counted = self.statistics.to_json()
        return {"statistics": counted, "loaded": loaded, "used": sorted(used), "processes": processes}


class Front:
    """One front, from its start to its end."""

    def __init__(self, terms: JsonObject) -> None:
        self._terms = terms
        self._settings = Settings.from_json(terms["settings"])
        self._server: _Server | None = None
        self._channel: Channel | None = None
        self._services: FrontServices | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self) -> int:
        """Serves until the first process says stop, or is gone."""
        config = uvicorn.Config(
            Starlette(lifespan=self._lifespan),
            loop="uvloop",
            http=FrontLane.bound_to(self._settings.limits),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=10,
        )
        self._server = _Server(config, lambda: self._send({"op": "ready"}))
        self._server.run(sockets=[socket.socket(fileno=each) for each in self._terms["listeners"]])
        return 0 if self._server.started else 1

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[dict[str, Any]]:
        settings, terms, loop = self._settings, self._terms, asyncio.get_running_loop()
        pool = Pool(allow_weak_sandbox=settings.allow_weak_sandbox)
        journal = JournalReader(settings.data / "journal.sqlite3")
        store = open_reader(str(settings.data))
        recorded = Recorded(journal, store, lambda: _soon(loop, self._tell))
        sessions = Sessions(pool, settings.session_limits, store.scratch)
        services = FrontServices(settings, Finder(journal, recorded), sessions, Statistics(), recorded)
        shared = SharedBuckets(terms["rates"][0]) if terms["rates"] else None
        gate = Gate(Keys(settings.data) if terms["asks_keys"] else None, Rates(settings.limits, shared=shared))
        requests = RequestLog(settings.request_log)
        self._services = services
        self._channel = Channel(socket.socket(fileno=terms["channel"]), self._on_message, self._stop)
        for work in (self._warm(pool), self._keep_telling(), keep_giving_back()):
            self._spawn(work)
        try:
            yield {
                Door.STATE: Door(services, gate, local_only=terms["local_only"]),
                RequestLog.STATE: requests,
                FrontLane.CHANNEL: self._channel,
            }
        finally:
            for task in list(self._tasks):
                task.cancel()
            await sessions.close()
            await pool.close()
            requests.flush()
            self._tell()
            self._channel.close()
            journal.close()

    def _on_message(self, message: JsonObject, descriptors: list[int]) -> None:
        for each in descriptors:
            os.close(each)
        if message["op"] == "stop":
            self._stop()
        elif message["op"] == "tell":
            self._tell(message["number"])
        else:
            self._spawn(self._change(message))

    async def _change(self, message: JsonObject) -> None:
        """Loads or unloads an Artifact, and says so."""
        said: JsonObject = {"op": "done", "number": message["number"]}
        services = self._services
        try:
            if services is not None and message["op"] == "load":
                found = services.publications.find(message["key"])
                await services.sessions.preload(found.loadable, message["replicas"])
            elif services is not None:
                services.sessions.unload(message["key"])
        except Problem as problem:
            said["problem"] = problem.to_json()
        self._tell()
        self._send(said)

    def _tell(self, number: int = -1) -> None:
        if self._services is None:
            return
        memory = in_memory(json.dumps(self._services.told()).encode())
        try:
            self._send({"op": "told", "number": number}, [memory])
        finally:
            os.close(memory)

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            self._tell()

    async def _warm(self, pool: Pool) -> None:
        # Where it cannot be started, the next request tries again and has the Problem.
        with contextlib.suppress(InternalError):
            await pool.zygote("infer")

    def _send(self, message: JsonObject, descriptors: tuple[int, ...] | list[int] = ()) -> None:
        if self._channel is not None:
            self._channel.send(message, descriptors)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(work)


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it takes connections, and ends by itself at a signal."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening."""
        await super().startup(sockets)
        if self.started:
            self._acceptor = Acceptor(self, sockets or [])
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what was asked."""
        if self._acceptor is not None:
            self._acceptor.close()
        await super().shutdown(sockets)
        self._captured_signals.clear()


if __name__ == "__main__":
    configure_logging()
    sys.exit(Front(json.loads(sys.argv[1])).run())
