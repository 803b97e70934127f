"""Wall and CPU time of a piece of work, in ms."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from service.errors import JsonObject
from service.nouns import Limits
from service.phases import too_long


@dataclass
class Duration:
    """Wall and CPU time of one or more pieces of work; CPU time is that of all threads of the process."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0

    def to_json(self) -> JsonObject:
        return {"wall_ms": round(self.wall_ms, 3), "cpu_ms": round(self.cpu_ms, 3)}

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Adds the time of the body."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall_ms += (time.perf_counter() - wall) * 1e3
            self.cpu_ms += (time.process_time() - cpu) * 1e3


def check(phase: str, spent: Duration, limits: Limits, **where: object) -> None:
    """Raises DeadlineExceeded when a phase that has ended, or a part of it, took more than its limits."""
    problem = too_long(phase, limits, spent.wall_ms / 1e3, spent.cpu_ms / 1e3)
    if problem is not None:
        problem.extensions |= {name: value for name, value in where.items() if value is not None}
        raise problem


class Stopwatch:
    """Parts a piece of work that cannot be parted otherwise."""

    def __init__(self) -> None:
        self._last = (time.perf_counter(), time.process_time())

    def lap(self) -> Duration:
        """The time since the last lap, or since this was made."""
        now = (time.perf_counter(), time.process_time())
        (wall, cpu), self._last = self._last, now
        return Duration((now[0] - wall) * 1e3, (now[1] - cpu) * 1e3)
