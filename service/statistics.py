"""How often each model was run and how long that took, since the server started, in Triton's shape."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from dataclasses import dataclass, field

from service.errors import JsonObject
from service.replica import Outcome

# Upper bounds in seconds of the histogram of run times; what is longer is in one more bucket.
BUCKETS_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BUCKETS_NS = tuple(round(bound * 1e9) for bound in BUCKETS_S)
# Upper bounds of the histogram of batches, in requests that ran as one.
BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass
class Counts:
    """Of one version of a model: requests by how they ended, ns by where they went, histograms of runs and batches.

    `queue_ns` is from when a request was ready to run until its answer was there, less its run: what it waited for.
    """

    succeeded: int = 0
    succeeded_ns: int = 0
    queue_ns: int = 0
    run_ns: int = 0
    failed: int = 0
    failed_ns: int = 0
    last_ms: int = 0
    run_buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    queue_buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    # By the number of requests that ran as one: how many requests, and ns of their runs.
    batches: dict[int, list[int]] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Adds what another process has counted of the same version."""
        for each in ("succeeded", "succeeded_ns", "queue_ns", "run_ns", "failed", "failed_ns"):
            setattr(self, each, getattr(self, each) + getattr(other, each))
        self.last_ms = max(self.last_ms, other.last_ms)
        for mine, theirs in ((self.run_buckets, other.run_buckets), (self.queue_buckets, other.queue_buckets)):
            mine[:] = map(sum, zip(mine, theirs, strict=True))
        for size, (requests, ns) in other.batches.items():
            batch = self.batches.setdefault(size, [0, 0])
            batch[0] += requests
            batch[1] += ns

    def executions(self) -> int:
        """How many runs there were."""
        return round(sum(requests / size for size, (requests, _) in self.batches.items()))


class Statistics:
    """Counts by model and version, and of errors by their type. Methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counts] = {}
        self.problems: Counter[str] = Counter()
        # Inferences that the fast lane took.
        self.by_fast_lane = 0

    def succeeded(self, name: str, version: str, whole_ns: int, outcome: Outcome) -> None:
        """Notes a request that was answered, `whole_ns` after it had been received."""
        counts = self._of(name, version)
        counts.succeeded += 1
        counts.succeeded_ns += whole_ns
        counts.queue_ns += outcome.queue_ns
        counts.run_ns += outcome.run_ns
        counts.run_buckets[bisect.bisect_left(_BUCKETS_NS, outcome.run_ns)] += 1
        counts.queue_buckets[bisect.bisect_left(_BUCKETS_NS, outcome.queue_ns)] += 1
        batch = counts.batches.get(outcome.batch)
        if batch is None:
            batch = counts.batches[outcome.batch] = [0, 0]
        batch[0] += 1
        batch[1] += outcome.run_ns
        counts.last_ms = time.time_ns() // 1_000_000

    def failed(self, name: str, version: str, whole_ns: int) -> None:
        """Notes a request that ended with an error."""
        counts = self._of(name, version)
        counts.failed += 1
        counts.failed_ns += whole_ns

    def _of(self, name: str, version: str) -> Counts:
        counts = self._counts.get((name, version))
        if counts is None:
            counts = self._counts[name, version] = Counts()
        return counts

    def of(self, name: str, version: str) -> JsonObject:
        """The statistics of one version of a model; zeros where it was not run."""
        counts = self._counts.get((name, version), Counts())
        nothing = {"count": 0, "ns": 0}
        success = {"count": counts.succeeded, "ns": counts.succeeded_ns}
        rest = counts.succeeded_ns - counts.queue_ns - counts.run_ns
        return {
            "name": name,
            "version": version,
            "last_inference": counts.last_ms,
            "inference_count": counts.succeeded,
            "execution_count": counts.executions(),
            "inference_stats": {
                "success": success,
                "fail": {"count": counts.failed, "ns": counts.failed_ns},
                "queue": {"count": counts.succeeded, "ns": counts.queue_ns},
                "compute_input": {"count": counts.succeeded, "ns": rest},
                "compute_infer": {"count": counts.succeeded, "ns": counts.run_ns},
                "compute_output": nothing,
                "cache_hit": nothing,
                "cache_miss": nothing,
            },
            "batch_stats": [
                {"batch_size": size, "compute_infer": {"count": round(requests / size), "ns": ns // size}}
                for size, (requests, ns) in sorted(counts.batches.items())
            ],
        }

    def add(self, other: Statistics) -> None:
        """Adds what another process has counted."""
        for (name, version), counts in other._counts.items():
            self._of(name, version).add(counts)
        self.problems.update(other.problems)
        self.by_fast_lane += other.by_fast_lane

    def to_json(self) -> JsonObject:
        """All counts, for another process."""
        counts = [
            [name, version, {**vars(counts), "batches": list(counts.batches.items())}]
            for (name, version), counts in self._counts.items()
        ]
        return {"counts": counts, "problems": dict(self.problems), "by_fast_lane": self.by_fast_lane}

    @classmethod
    def from_json(cls, document: JsonObject) -> Statistics:
        """What `to_json` has made."""
        found = cls()
        for name, version, counts in document["counts"]:
            found._counts[name, version] = Counts(**{**counts, "batches": dict(counts["batches"])})
        found.problems.update(document["problems"])
        found.by_fast_lane = document["by_fast_lane"]
        return found

    def counts(self) -> dict[tuple[str, str], Counts]:
        """By name and version."""
        return self._counts

    def all(self) -> list[JsonObject]:
        """The statistics of all models that were asked for, by name and version."""
        return [self.of(name, version) for name, version in sorted(self._counts)]
