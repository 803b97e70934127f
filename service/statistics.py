"""How often each model was run and how long that took, since the server started, in Triton's shape."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from dataclasses import dataclass, field

from service.errors import JsonObject

# Upper bounds in seconds of the histogram of run times; what is longer is in one more bucket.
BUCKETS_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass
class Counts:
    """Of one version of a model: requests by how they ended, ns in all and in the worker, runs by their time."""

    succeeded: int = 0
    succeeded_ns: int = 0
    run_ns: int = 0
    failed: int = 0
    failed_ns: int = 0
    last_ms: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))


class Statistics:
    """Counts by model and version, and of errors by their type. Methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counts] = {}
        self.problems: Counter[str] = Counter()

    def succeeded(self, name: str, version: str, whole_ns: int, run_ns: int) -> None:
        """Notes a request that was answered: the time in all, and of that what its worker took or kept it waiting."""
        counts = self._counts.setdefault((name, version), Counts())
        counts.succeeded += 1
        counts.succeeded_ns += whole_ns
        counts.run_ns += run_ns
        counts.buckets[bisect.bisect_left(BUCKETS_S, run_ns / 1e9)] += 1
        counts.last_ms = time.time_ns() // 1_000_000

    def failed(self, name: str, version: str, whole_ns: int) -> None:
        """Notes a request that ended with an error."""
        counts = self._counts.setdefault((name, version), Counts())
        counts.failed += 1
        counts.failed_ns += whole_ns

    def of(self, name: str, version: str) -> JsonObject:
        """The statistics of one version of a model; zeros where it was not run."""
        counts = self._counts.get((name, version), Counts())
        nothing = {"count": 0, "ns": 0}
        success = {"count": counts.succeeded, "ns": counts.succeeded_ns}
        return {
            "name": name,
            "version": version,
            "last_inference": counts.last_ms,
            "inference_count": counts.succeeded,
            "execution_count": counts.succeeded,
            "inference_stats": {
                "success": success,
                "fail": {"count": counts.failed, "ns": counts.failed_ns},
                "queue": nothing,
                "compute_input": {"count": counts.succeeded, "ns": counts.succeeded_ns - counts.run_ns},
                "compute_infer": {"count": counts.succeeded, "ns": counts.run_ns},
                "compute_output": nothing,
                "cache_hit": nothing,
                "cache_miss": nothing,
            },
            "batch_stats": [],
        }

    def counts(self) -> dict[tuple[str, str], Counts]:
        """By name and version."""
        return self._counts

    def all(self) -> list[JsonObject]:
        """The statistics of all models that were asked for, by name and version."""
        return [self.of(name, version) for name, version in sorted(self._counts)]
