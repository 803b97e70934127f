"""GET /metrics for Prometheus: read off the counts that the parts keep anyway, when it is asked for."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from service.api.problems import check_parameters
from service.api.state import Services, ServicesDep
from service.fronts import Usage
from service.statistics import BATCHES, BUCKETS_S, Statistics

router = APIRouter(tags=["about"])


@router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Requests, errors, run times and Compilations since the server started, in Prometheus's text format."""
    check_parameters(request)
    registry = CollectorRegistry()
    statistics, loaded = await services.fronts.gather(services.statistics)
    for session in services.sessions.sessions():
        key = session.loadable.key
        mine = Usage(session.waiting, len(session.replicas), session.memory_bytes)
        loaded[key] = mine + loaded.get(key, Usage(0, 0, 0))
    registry.register(_Snapshot(services, statistics, loaded))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Snapshot(Collector):
    def __init__(self, services: Services, statistics: Statistics, loaded: dict[str, Usage]) -> None:
        """`statistics` and `loaded` are those of all web processes together."""
        self._services = services
        self._statistics = statistics
        self._loaded = loaded

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """All families, made of what the parts of the server have counted."""
        yield from self._of_models()
        yield from self._of_sessions()
        yield from self._of_compilations()
        errors = CounterMetricFamily("relaxd_problems", "Error answers by type of problem", labels=["type"])
        for slug, count in sorted(self._statistics.problems.items()):
            errors.add_metric([slug], count)
        yield errors

    def _of_models(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        labels = ["model", "version"]
        requests = CounterMetricFamily("relaxd_inferences", "Inferences by how they ended", labels=[*labels, "outcome"])
        runs = HistogramMetricFamily("relaxd_run_seconds", "Seconds of the run in the model's worker", labels=labels)
        queues = HistogramMetricFamily("relaxd_queue_seconds", "Seconds of waiting for the run", labels=labels)
        batches = HistogramMetricFamily("relaxd_batch_requests", "Requests in the run of a request", labels=labels)
        for (name, version), counts in sorted(self._statistics.counts().items()):
            requests.add_metric([name, version, "succeeded"], counts.succeeded)
            requests.add_metric([name, version, "failed"], counts.failed)
            runs.add_metric([name, version], _rising(BUCKETS_S, counts.run_buckets), counts.run_ns / 1e9)
            queues.add_metric([name, version], _rising(BUCKETS_S, counts.queue_buckets), counts.queue_ns / 1e9)
            sizes = [0] * (len(BATCHES) + 1)
            for size, (number, _) in counts.batches.items():
                sizes[bisect.bisect_left(BATCHES, size)] += number
            total = sum(size * number for size, (number, _) in counts.batches.items())
            batches.add_metric([name, version], _rising(BATCHES, sizes), total)
        yield from (requests, runs, queues, batches)
        taken = self._statistics.by_fast_lane
        yield CounterMetricFamily("relaxd_fast_lane", "Inferences that the fast lane took", value=taken)

    def _of_sessions(self) -> Iterator[GaugeMetricFamily]:
        processes = 1 + self._services.fronts.ready()
        yield GaugeMetricFamily("relaxd_web_processes", "Processes that take connections now", value=processes)
        number = len(self._loaded)
        yield GaugeMetricFamily("relaxd_loaded_artifacts", "Artifacts that have a worker now", value=number)
        waiting = GaugeMetricFamily("relaxd_waiting_inferences", "Inferences not answered yet", labels=["compilation"])
        replicas = GaugeMetricFamily("relaxd_replicas", "Workers of an artifact", labels=["compilation"])
        memory = GaugeMetricFamily("relaxd_loaded_bytes", "Bytes that its workers took to load", labels=["compilation"])
        for key, usage in self._loaded.items():
            waiting.add_metric([key], usage.waiting)
            replicas.add_metric([key], usage.replicas)
            memory.add_metric([key], usage.memory_bytes)
        yield from (waiting, replicas, memory)

    def _of_compilations(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        compilations = self._services.compilations
        ended = CounterMetricFamily(
            "relaxd_compilations", "Compilations that ended, by state and type of problem", labels=["state", "problem"]
        )
        for (state, problem), count in sorted(compilations.outcomes.items()):
            ended.add_metric([state, problem], count)
        yield ended
        spent = CounterMetricFamily("relaxd_compile_cpu_seconds", "CPU time of Compilations by phase", labels=["phase"])
        for phase, cpu_ms in sorted(compilations.cpu_ms.items()):
            spent.add_metric([phase], cpu_ms / 1e3)
        yield spent
        kernels = CounterMetricFamily(
            "relaxd_kernels", "Kernels that Compilations had of earlier ones, or made", labels=["outcome"]
        )
        if compilations.kernels is not None:
            kernels.add_metric(["known"], compilations.kernels.found)
            kernels.add_metric(["made"], compilations.kernels.missed)
        yield kernels
        now = GaugeMetricFamily("relaxd_compilations_now", "Compilations that run or wait", labels=["state"])
        for state, count in compilations.counts().items():
            now.add_metric([state], count)
        yield now


def _rising(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """The buckets of a histogram as Prometheus has them: each counts all up to its bound."""
    return list(zip([*map(str, bounds), "+Inf"], itertools.accumulate(counts), strict=True))
