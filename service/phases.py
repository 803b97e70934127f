"""What each phase of a Compilation may take: wall and CPU seconds, as the web process sees them from outside.

The worker says which phase begins, and may lie. So each phase has one account, however often it is begun, and the sum
of all is limited by the kernel and by the deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from service.errors import DeadlineExceeded
from service.nouns import Limits

# The phases that a worker names, in words, and the stem of their limits' names. What comes before the import belongs to
# it; tuning has its own budget.
PHASES = {
    "import": ("the import", "import"),
    "pass": ("the passes", "passes"),
    "build": ("the build", "build"),
    "verify": ("the verification", "verify"),
}

# How often is looked at least, and at most.
SLOWEST_LOOK_S, QUICKEST_LOOK_S = 1.0, 0.02


def cpu_s(pid: int) -> float:
    """The CPU time of all threads of a process, by its CPU clock. Raises OSError when it is gone."""
    # As clock_getcpuclockid(3) makes the clock's number.
    return time.clock_gettime((~pid << 3) | 2)


class Phases:
    """The accounts of one run. When a limit is passed, `exceeded` is the Problem for that, and `stop` is called."""

    def __init__(
        self,
        limits: Limits,
        stop: Callable[[], None],
        wall: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = lambda: 0.0,
        cores: int = 1,
    ) -> None:
        self.exceeded: DeadlineExceeded | None = None
        self._stop = stop
        self._clocks = {"": wall, "cpu_": cpu}
        self._cores = cores
        self._limits = {
            (phase, clock): float(getattr(limits, f"{stem}_{clock}s"))
            for phase, (_, stem) in PHASES.items()
            for clock in self._clocks
        }
        self._spent: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._phase = "import"
        self._seen = {clock: read() for clock, read in self._clocks.items()}

    def begin(self, phase: str) -> None:
        """Charges the time until now, and what follows to `phase`."""
        self.look()
        self._phase = phase

    def look(self) -> float:
        """Charges the time until now; in how many seconds at the earliest a limit may be passed."""
        left = SLOWEST_LOOK_S
        for clock, read in self._clocks.items():
            key = (self._phase, clock)
            try:
                now = read()
            except OSError:
                continue  # The process is gone: that is noticed elsewhere.
            self._spent[key] += now - self._seen[clock]
            self._seen[clock] = now
            if key in self._limits:
                rest = self._limits[key] - self._spent[key]
                if rest < 0 and self.exceeded is None:
                    self.exceeded = self._problem(clock)
                    self._stop()
                left = min(left, rest / (self._cores if clock else 1))
        return max(left, QUICKEST_LOOK_S)

    async def watch(self) -> None:
        """Looks until it is cancelled, or a limit is passed."""
        while self.exceeded is None:
            await asyncio.sleep(self.look())

    def _problem(self, clock: str) -> DeadlineExceeded:
        words, stem = PHASES[self._phase]
        limit = self._limits[self._phase, clock]
        seconds = "CPU seconds" if clock else "seconds"
        return DeadlineExceeded(
            f"The compilation was stopped: {words} took more than the limit of {limit:g} {seconds}. Send a smaller "
            f"model, or let the operator raise RELAXD_{stem.upper()}_{clock.upper()}S.",
            phase=self._phase,
            **{f"limit_{clock}s": limit},
        )
