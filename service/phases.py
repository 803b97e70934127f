"""What each phase of a Compilation may take: wall and CPU seconds.

The worker looks when a phase has ended, and the web process from outside meanwhile. The worker says which phase begins,
and may lie: so each phase has one account, however often it is begun, and the sum of all is limited by the kernel and
by the deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable

from service.errors import DeadlineExceeded
from service.nouns import Limits

# The phases that a worker names, in words, and the stem of their limits' names. What comes before the import belongs to
# it; tuning, where it was asked for, has its own budget.
TUNE = "tune"
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


def too_long(phase: str, limits: Limits, wall_s: float, cpu_s: float) -> DeadlineExceeded | None:
    """The Problem for a phase that has taken so much; None within its limits."""
    words, stem = PHASES[phase]
    for spent, clock, unit in ((wall_s, "", "seconds"), (cpu_s, "cpu_", "CPU seconds")):
        limit = limit_of(phase, clock, limits)
        if spent > limit:
            return DeadlineExceeded(
                f"The compilation was stopped: {words} took more than the limit of {limit:g} {unit}. Send a smaller "
                f"model, or let the operator raise RELAXD_{stem.upper()}_{clock.upper()}S.",
                phase=phase,
                **{f"limit_{clock}s": limit},
            )
    return None


def limit_of(phase: str, clock: str, limits: Limits) -> float:
    """The seconds of a phase by the wall clock (``""``) or the CPU clock (``"cpu_"``)."""
    return float(getattr(limits, f"{PHASES[phase][1]}_{clock}s"))


class Phases:
    """The accounts of one run. When a limit is passed, `exceeded` is the Problem for that, and `stop` is called."""

    def __init__(
        self,
        limits: Limits,
        stop: Callable[[], None],
        wall: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = lambda: 0.0,
        cores: int = 1,
        *,
        tunes: bool = False,
    ) -> None:
        self.exceeded: DeadlineExceeded | None = None
        self._stop = stop
        self._clocks = {"": wall, "cpu_": cpu}
        self._cores = cores
        self._known = {*PHASES, TUNE} if tunes else {*PHASES}
        self._limits = limits
        self._spent: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._phase = "import"
        self._begun = asyncio.Event()
        self._seen: dict[str, float] = {}
        self._seen = {clock: self._read(clock) for clock in self._clocks}

    def begin(self, phase: str) -> None:
        """Charges the time until now, and what follows to `phase`; a name that is none changes nothing."""
        self.look()
        if phase in self._known:
            self._phase = phase
            self._begun.set()

    def look(self) -> float:
        """Charges the time until now; in how many seconds at the earliest a limit may be passed."""
        for clock in self._clocks:
            now = self._read(clock)
            self._spent[self._phase, clock] += now - self._seen[clock]
            self._seen[clock] = now
        if self._phase not in PHASES:
            return SLOWEST_LOOK_S
        wall, cpu = (self._spent[self._phase, clock] for clock in self._clocks)
        if self.exceeded is None:
            self.exceeded = too_long(self._phase, self._limits, wall, cpu)
            if self.exceeded is not None:
                self._stop()
        wall_left, cpu_left = (limit_of(self._phase, clock, self._limits) for clock in self._clocks)
        left = min(SLOWEST_LOOK_S, wall_left - wall, (cpu_left - cpu) / self._cores)
        return max(left, QUICKEST_LOOK_S)

    async def watch(self) -> None:
        """Looks until it is cancelled, or a limit is passed."""
        while self.exceeded is None:
            self._begun.clear()
            # Another phase may have less left than the one before.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._begun.wait(), self.look())

    def _read(self, clock: str) -> float:
        try:
            return self._clocks[clock]()
        except OSError:
            # The process is gone: that is noticed elsewhere.
            return self._seen.get(clock, 0.0)
