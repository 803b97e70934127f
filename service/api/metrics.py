"""GET /metrics for Prometheus: read off the counts that the parts keep anyway, when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from service.api.problems import check_parameters
from service.api.state import Services, ServicesDep
from service.statistics import BUCKETS_S

router = APIRouter(tags=["about"])


@router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Requests, errors, run times and Compilations since the server started, in Prometheus's text format."""
    check_parameters(request)
    registry = CollectorRegistry()
    registry.register(_Snapshot(services))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Snapshot(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """All families, made of what the parts of the server have counted."""
        yield from self._of_models()
        yield from self._of_compilations()
        errors = CounterMetricFamily("relaxd_problems", "Error answers by type of problem", labels=["type"])
        for slug, count in sorted(self._services.statistics.problems.items()):
            errors.add_metric([slug], count)
        yield errors

    def _of_models(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        labels = ["model", "version"]
        requests = CounterMetricFamily("relaxd_inferences", "Inferences by how they ended", labels=[*labels, "outcome"])
        runs = HistogramMetricFamily("relaxd_run_seconds", "Seconds in or before the model's worker", labels=labels)
        for (name, version), counts in sorted(self._services.statistics.counts().items()):
            requests.add_metric([name, version, "succeeded"], counts.succeeded)
            requests.add_metric([name, version, "failed"], counts.failed)
            reached, buckets = 0, []
            for bound, count in zip([*BUCKETS_S, "+Inf"], counts.buckets, strict=True):
                reached += count
                buckets.append((str(bound), reached))
            runs.add_metric([name, version], buckets, counts.run_ns / 1e9)
        yield requests
        yield runs
        loaded = self._services.sessions.loaded()
        yield GaugeMetricFamily("relaxd_loaded_artifacts", "Artifacts that have a worker now", value=loaded)

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
