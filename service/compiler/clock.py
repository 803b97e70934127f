"""Wall and CPU time of a piece of work, in ms."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from service.errors import JsonObject


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


class Stopwatch:
    """Parts a piece of work that cannot be parted otherwise."""

    def __init__(self) -> None:
        self._last = (time.perf_counter(), time.process_time())

    def lap(self) -> Duration:
        """The time since the last lap, or since this was made."""
        now = (time.perf_counter(), time.process_time())
        (wall, cpu), self._last = self._last, now
        return Duration((now[0] - wall) * 1e3, (now[1] - cpu) * 1e3)
