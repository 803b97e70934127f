"""How long each kernel of an Artifact takes, over repeated runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.errors import JsonObject
from service.runtime.session import Array, Session

# A first few runs fill the caches and make the memory that later ones reuse.
WARM_UP = 3
MOST_SECONDS = 20.0


@dataclass
class _Recorder:
    """Called by the virtual machine before and after each call, with the function's name."""

    spent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _started: int = 0

    def __call__(self, _function: Any, name: str, before_run: bool, _result: Any, *_arguments: Any) -> None:
        if before_run:
            self._started = time.perf_counter_ns()
            return
        self.spent[name] += time.perf_counter_ns() - self._started
        self.calls[name] += 1


def profile(session: Session, inputs: Sequence[Array], runs: int) -> JsonObject:
    """Times in µs: of whole runs without the recorder, and of each function with it. Ends early after 20 s.

    Of each function the minimum, the median and the spread (from the 10th to the 90th percentile) of its sum over one
    run, and how often a run calls it. Raises ExecutionFailed.
    """
    until = time.perf_counter() + MOST_SECONDS
    whole: list[float] = []
    for number in range(WARM_UP + runs):
        start = time.perf_counter_ns()
        session.run(inputs)
        if number >= WARM_UP:
            whole.append((time.perf_counter_ns() - start) / 1e3)
        if time.perf_counter() > until and whole:
            break
    samples: dict[str, list[float]] = defaultdict(list)
    calls: dict[str, int] = {}
    for _ in range(len(whole)):
        recorder = _Recorder()
        with session.instrumented(recorder):
            session.run(inputs)
        for name, nanoseconds in recorder.spent.items():
            samples[name].append(nanoseconds / 1e3)
        calls = dict(recorder.calls)
        if time.perf_counter() > until + MOST_SECONDS:
            break
    functions = [{"function": name, "calls": calls[name], **_figures(times)} for name, times in samples.items()]
    return {"runs": len(whole), "total": _figures(whole), "functions": functions}


def _figures(times: list[float]) -> JsonObject:
    low, high = np.percentile(times, [10, 90])
    return {
        "min_us": round(min(times), 3),
        "median_us": round(float(np.median(times)), 3),
        "spread_us": round(float(high - low), 3),
    }
