"""Web processes beside the first one: started, watched, told what changes, and asked for what they have counted.

The first process owns the store, the journal and all that compiles. The others, the fronts, take connections from the
same listening socket and answer inferences, with infer workers of their own; a connection with anything else on it they
hand over to the first process, as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from service.channel import Channel, from_memory
from service.errors import JsonObject, problem_from_json
from service.orphans import reap_orphan
from service.rates import SharedBuckets
from service.settings import Settings
from service.statistics import Statistics

log = logging.getLogger(__name__)

# What a front has for its end: it answers what it was asked within uvicorn's own limit.
END_S = 15.0
# How long a front may take to do what it is asked, beside what loading takes.
ASK_S = 5.0
# Until one that has ended is replaced: the longer, the sooner it has ended.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0

Adopt = Callable[[socket.socket, bytes], None]


@dataclass(frozen=True)
class Usage:
    """One loaded Artifact: calls that wait, workers, and the bytes that these took; in all processes together."""

    waiting: int
    replicas: int
    memory_bytes: int

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.waiting + other.waiting, self.replicas + other.replicas, self.memory_bytes + other.memory_bytes
        )


@dataclass(eq=False)
class _Front:
    """One place for a front, whichever process is in it now."""

    channel: Channel | None = None
    ready: bool = False
    # Of the process that is there now; of those before it.
    statistics: Statistics = field(default_factory=Statistics)
    before: Statistics = field(default_factory=Statistics)
    loaded: dict[str, Usage] = field(default_factory=dict)
    # Its zygotes and workers, which in a container are the first process's to reap when it dies.
    processes: list[int] = field(default_factory=list)
    # What it was asked, by number, and has not done.
    asked: dict[int, asyncio.Future[None]] = field(default_factory=dict)


class Fronts:
    """The fronts of a server; none where one process is enough. Methods belong to the event loop's thread."""

    def __init__(
        self,
        settings: Settings,
        shared: SharedBuckets | None,
        on_used: Callable[[list[str]], None],
        *,
        asks_keys: bool,
        local_only: bool,
    ) -> None:
        """`on_used` gets the ids of Compilations that fronts have used, from time to time."""
        self._settings = settings
        self._on_used = on_used
        self._shared = shared
        self._terms: JsonObject = {"asks_keys": asks_keys, "local_only": local_only}
        self._fronts = [_Front() for _ in range(settings.web_processes - 1)]
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = itertools.count()
        self._stopping = False
        # Artifacts that were loaded on purpose, the latest last, and in how many replicas: what a new front loads, too.
        self._preloaded: dict[str, int | None] = {}

    def start(self, listeners: list[int], adopt: Adopt) -> None:
        """Starts them on listening sockets; `adopt` gets connections that they hand over, with their first bytes."""
        for front in self._fronts:
            self._tasks.append(asyncio.create_task(self._keep(front, listeners, adopt)))

    def ready(self) -> int:
        """How many take connections now."""
        return sum(front.ready for front in self._fronts)

    async def load(self, key: str, replicas: int | None) -> None:
        """Has all load an Artifact. Raises the first Problem that one of them has."""
        self._preloaded.pop(key, None)
        self._preloaded[key] = replicas
        while len(self._preloaded) > self._settings.limits.loaded_sessions:
            del self._preloaded[next(iter(self._preloaded))]
        await self._ask_all({"op": "load", "key": key, "replicas": replicas})

    async def unload(self, key: str) -> None:
        """Has all end their workers of that Artifact, when those who use it now have their answers."""
        self._preloaded.pop(key, None)
        await self._ask_all({"op": "unload", "key": key})

    def is_loaded(self, key: str) -> bool:
        """Whether one of them has that Artifact loaded, as they have told last: every second, and when it is loaded."""
        return any(key in front.loaded for front in self._fronts)

    async def gather(self, own: Statistics) -> tuple[Statistics, dict[str, Usage]]:
        """What all processes together have counted, and the Artifacts that fronts have loaded."""
        if not self._fronts:
            return own, {}
        await self._ask_all({"op": "tell"})
        total = Statistics()
        loaded: dict[str, Usage] = {}
        total.add(own)
        for front in self._fronts:
            total.add(front.before)
            total.add(front.statistics)
            for key, usage in front.loaded.items():
                loaded[key] = usage + loaded.get(key, Usage(0, 0, 0))
        return total, loaded

    async def stop(self) -> None:
        """Ends all, which answer first what they were asked."""
        self._stopping = True
        for front, task in zip(self._fronts, self._tasks, strict=False):
            if front.channel is None:
                task.cancel()
            else:
                front.channel.send({"op": "stop"})
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask_all(self, message: JsonObject) -> None:
        """Until each front that is ready has done what it was asked, or has ended, or has not within `ASK_S`."""
        asked = []
        for front in self._fronts:
            if front.ready and front.channel is not None:
                number = next(self._numbers)
                front.asked[number] = asyncio.get_running_loop().create_future()
                asked.append(front.asked[number])
                front.channel.send({**message, "number": number})
        if not asked:
            return
        seconds = ASK_S + (self._settings.limits.infer_s if message["op"] == "load" else 0.0)
        done, late = await asyncio.wait(asked, timeout=seconds)
        if late:
            log.warning("%d fronts have not done %r within %.0f s", len(late), message["op"], seconds)
        for each in late:
            each.cancel()
        problems = [error for each in done if (error := each.exception()) is not None]
        if problems:
            raise problems[0]

    async def _keep(self, front: _Front, listeners: list[int], adopt: Adopt) -> None:
        """Has a process in a front's place until the server stops."""
        wait_s = FIRST_WAIT_S
        while True:
            begun = time.monotonic()
            try:
                status = await self._run(front, listeners, adopt)
            except OSError as error:
                status = str(error)
            if self._stopping:
                return
            # One that has lived is replaced at once; one that cannot start must not keep the machine busy.
            wait_s = FIRST_WAIT_S if time.monotonic() - begun > LONGEST_WAIT_S else min(2 * wait_s, LONGEST_WAIT_S)
            log.error("a front ended (%s); another starts in %.1f s", status, wait_s)
            await asyncio.sleep(wait_s)

    async def _run(self, front: _Front, listeners: list[int], adopt: Adopt) -> str:
        """One process from its start to its end, which is told. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        shared = [] if self._shared is None else [self._shared.descriptor]
        descriptors = {"channel": theirs.fileno(), "listeners": listeners, "rates": shared}
        terms = json.dumps({**self._terms, **descriptors, "settings": self._settings.to_json()})
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "service.front", terms),
                pass_fds=[theirs.fileno(), *listeners, *shared],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        front.channel = Channel(
            ours,
            lambda message, descriptors: self._on_message(front, message, descriptors, adopt),
            lambda: _end(ended),
        )
        try:
            await ended
            status = await asyncio.wait_for(process.wait(), END_S)
        finally:
            front.channel.close()
            front.channel, front.ready = None, False
            for each in front.asked.values():
                _end(each)
            front.asked = {}
            front.before.add(front.statistics)
            front.statistics, front.loaded = Statistics(), {}
            if process.returncode is None:
                process.kill()
                await process.wait()
            for pid in front.processes:
                with contextlib.suppress(OSError):
                    reap_orphan(os.pidfd_open(pid))
            front.processes = []
        return f"by signal {-status}" if status < 0 else f"with code {status}"

    def _on_message(self, front: _Front, message: JsonObject, descriptors: list[int], adopt: Adopt) -> None:
        if message["op"] == "connection":
            adopt(socket.socket(fileno=descriptors[0]), from_memory(descriptors[1]))
        elif message["op"] == "told":
            self._note(front, json.loads(from_memory(descriptors[0])))
        elif message["op"] == "ready":
            front.ready = True
            for key, replicas in self._preloaded.items():
                if front.channel is not None:
                    front.channel.send({"op": "load", "key": key, "replicas": replicas, "number": -1})
        asked = front.asked.pop(message.get("number", -1), None)
        if asked is not None and not asked.done():
            problem = message.get("problem")
            if problem is None:
                asked.set_result(None)
            else:
                asked.set_exception(problem_from_json(problem))

    def _note(self, front: _Front, told: JsonObject) -> None:
        front.statistics = Statistics.from_json(told["statistics"])
        front.loaded = {key: Usage(*numbers) for key, numbers in told["loaded"].items()}
        front.processes = told["processes"]
        self._on_used(told["used"])


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
