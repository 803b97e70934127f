"""Which Compilations may wait, and which of those that wait runs next: no caller keeps the others out.

And how many may be listed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from service.errors import Overloaded
from service.nouns import Limits
from service.serving_errors import QuotaExceeded


@dataclass(frozen=True, eq=False)
class _Waiting:
    caller: str | None
    turn: asyncio.Future[None]


class Admission:
    """The places of a server, in all and for each caller; None stands for callers without a key.

    A free place goes to the caller who has the fewest, and of these to the one who has waited longest. Methods belong
    to the event loop's thread.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._admitted: Counter[str | None] = Counter()
        self._running: Counter[str | None] = Counter()
        self._waiting: list[_Waiting] = []

    def admit(self, caller: str | None) -> None:
        """Takes in one more; `leave` gives its place back. Raises Overloaded, QuotaExceeded."""
        limits = self._limits
        limit = limits.concurrent_compilations + limits.queued_compilations
        if self._admitted.total() >= limit:
            raise Overloaded(
                f"{self._admitted.total()} compilations are running or waiting, the limit is {limit}. "
                "Send the request again later.",
                limit=limit,
                retry_after_s=5,
            )
        own = limits.caller_concurrent_compilations + limits.caller_queued_compilations
        if caller is not None and self._admitted[caller] >= own:
            raise QuotaExceeded(
                f"{self._admitted[caller]} compilations of the key {caller!r} are running or waiting, the limit of a "
                f"key is {own}. Send the request again later.",
                quota="compilations",
                limit=own,
                retry_after_s=5,
            )
        self._admitted[caller] += 1

    def leave(self, caller: str | None) -> None:
        """The end of one that was admitted."""
        self._admitted[caller] -= 1
        if not self._admitted[caller]:
            del self._admitted[caller]

    @contextlib.asynccontextmanager
    async def running(self, caller: str | None) -> AsyncIterator[None]:
        """Waits for a place to run in, and holds it for the body."""
        waiting = _Waiting(caller, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._give_places()
        try:
            await waiting.turn
        except BaseException:
            # Cancelled, maybe with its turn already given.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._give_back(caller)
            raise
        try:
            yield
        finally:
            self._give_back(caller)

    def _give_back(self, caller: str | None) -> None:
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]
        self._give_places()

    def _give_places(self) -> None:
        while self._running.total() < self._limits.concurrent_compilations:
            own = self._limits.caller_concurrent_compilations
            may = [each for each in self._waiting if each.caller is None or self._running[each.caller] < own]
            if not may:
                return
            chosen = min(may, key=lambda each: self._running[each.caller])
            self._waiting.remove(chosen)
            self._running[chosen.caller] += 1
            chosen.turn.set_result(None)


class Lists:
    """The Compilations in all lists that are being written: each takes milliseconds, in which nobody else is served."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.listed_compilations
        self._count = 0

    @contextlib.contextmanager
    def writing(self, count: int) -> Iterator[None]:
        """While a list of so many is written. One alone may be of any length. Raises Overloaded."""
        if self._count and self._count + count > self._limit:
            raise Overloaded(
                f"Lists of {self._count} compilations are being written, the limit is {self._limit} in all. "
                "Send the request again later, or with a smaller `limit`.",
                limit=self._limit,
                retry_after_s=1,
            )
        self._count += count
        try:
            yield
        finally:
            self._count -= count
