"""The FastAPI application: routes, error mapping, start and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.admission import Lists
from service.api import (
    about,
    artifacts,
    bisect,
    compile,
    events,
    infer,
    inspect,
    ir,
    metrics,
    models,
    oip,
    page,
    problems,
    profile,
    provenance,
    report,
    repro,
)
from service.api.access import Access, Gate
from service.api.browsers import Browsers
from service.api.door import Door
from service.api.head import HeadAsGet
from service.api.noted import Noted
from service.api.openapi import complete
from service.api.state import Services
from service.bisection import Bisections
from service.compilations import Compilations
from service.errors import Problem
from service.examinations import Examinations
from service.freed_memory import keep_giving_back
from service.fronts import Fronts
from service.inspections import Inspections
from service.journal import Journal
from service.kernel_store import KernelStore
from service.keys import Keys
from service.pool import Pool
from service.publications import Publications
from service.rates import Rates, SharedBuckets
from service.request_log import RequestLog
from service.retention import Retention
from service.sandbox_probe import probe_sandbox
from service.sessions import Sessions
from service.settings import Settings, check_sandbox
from service.statistics import Statistics
from service.store import Store, open_store
from service.tuning_database import TuningDatabase
from service.version import VERSION

log = logging.getLogger(__name__)

ROUTED = (
    compile,
    bisect,
    inspect,
    ir,
    provenance,
    profile,
    repro,
    report,
    infer,
    artifacts,
    models,
    oip,
    about,
    metrics,
    events,
    page,
)
DESCRIPTION = "Machine-learning compilation as an HTTP API: PyTorch models through Apache TVM Relax, step by step."


@dataclass(frozen=True)
class Data:
    """The opened data folder of a server."""

    store: Store
    journal: Journal

    def close(self) -> None:
        self.journal.close()
        self.store.close()


def open_data(folder: Path) -> Data:
    """Opens or creates a data folder for this server alone. Raises StoreBusy, JournalTooNew, sqlite3.Error, OSError."""
    store = open_store(str(folder))
    try:
        return Data(store, Journal(folder / "journal.sqlite3", store.size))
    except BaseException:
        store.close()
        raise


def create_app(settings: Settings, data: Data | None = None) -> FastAPI:
    """The server's application. It opens `settings.data` when it starts, unless `data` is open already."""
    shared = SharedBuckets.create() if settings.web_processes > 1 else None
    gate = Gate(asked_keys(settings), Rates(settings.limits, shared=shared))
    local_only = gate.is_open and settings.is_local and not settings.insecure
    requests = RequestLog(settings.request_log)
    app = FastAPI(
        title="relaxd",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lambda app: _lifespan(app, settings, data, gate, requests, shared, local_only=local_only),
        redirect_slashes=False,
        redoc_url=None,
        docs_url=None,
    )
    problems.install(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Access, gate=gate)
    app.add_middleware(Browsers, local_only=local_only)
    app.add_middleware(Noted, log=requests)
    for module in ROUTED:
        app.include_router(module.router)
    # The framework nests included routers; an answer 405 looks at their routes one by one.
    app.state.routes = [route for module in ROUTED for route in module.router.routes]

    def openapi() -> dict[str, Any]:
        schema = get_openapi(title=app.title, version=VERSION, description=DESCRIPTION, routes=app.routes)
        services: Services | None = getattr(app.state, "services", None)
        return complete(schema, None if services is None else services.compilations.known_catalogue())

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to change the document
    return app


def asked_keys(settings: Settings) -> Keys | None:
    """The keys that callers must have: where there are any, or others than this machine can reach the server."""
    known = Keys(settings.data)
    if settings.insecure or (settings.is_local and not known.all()):
        return None
    return known


@asynccontextmanager
async def _lifespan(
    app: FastAPI,
    settings: Settings,
    data: Data | None,
    gate: Gate,
    requests: RequestLog,
    shared: SharedBuckets | None,
    *,
    local_only: bool,
) -> AsyncIterator[dict[str, Any]]:
    data = data or open_data(settings.data)
    pool = Pool(allow_weak_sandbox=settings.allow_weak_sandbox)
    database = TuningDatabase(settings.data, settings.limits.tuning_records)
    compilations = Compilations(data.journal, data.store, pool, settings.limits, database, _kernel_store(settings))
    sessions = Sessions(pool, settings.session_limits, data.store.scratch)

    def note_used(ids: list[str]) -> None:
        compilations.used.update(ids)

    fronts = Fronts(settings, shared, note_used, asks_keys=not gate.is_open, local_only=local_only)
    inspections = Inspections(pool, settings.limits, data.store.scratch)
    examinations = Examinations(pool, settings.limits, data.store.scratch, compilations)
    bisections = Bisections(pool, settings.limits, data.store.scratch)
    sandbox = await probe_sandbox()
    check_sandbox(sandbox, settings)
    parts = (compilations, sessions, inspections, examinations, bisections)
    publications = Publications(data.journal, compilations)
    retention = Retention(
        data.journal,
        data.store,
        compilations,
        lambda key: sessions.is_loaded(key) or fronts.is_loaded(key),
        settings,
    )
    others = (Statistics(), sandbox, fronts, Lists(settings.limits))
    services = Services(settings, data.store, pool, *parts, publications, retention, *others)
    app.state.services = services
    tasks: list[asyncio.Task[None]] = []
    try:
        compilations.recover()
        tasks = [asyncio.create_task(_warm(pool, role)) for role in ("compile", "infer")]
        tasks.append(asyncio.create_task(retention.keep_sweeping()))
        tasks.append(asyncio.create_task(keep_giving_back()))
        # For the connections of relaxd's own protocols; a server with another has no use for that.
        door = Door(services, gate, local_only=local_only)
        yield {Door.STATE: door, RequestLog.STATE: requests}
    finally:
        for task in tasks:
            task.cancel()
        await fronts.stop()
        await bisections.close()
        await compilations.close()
        await sessions.close()
        await pool.close()
        requests.flush()
        data.close()


def _kernel_store(settings: Settings) -> KernelStore | None:
    """None where callers cannot be told apart and may be strangers: the kernels of one would run for another."""
    if asked_keys(settings) is None and not settings.is_local:
        return None
    return KernelStore(settings.data / "kernels", settings.limits.kernel_cache_bytes)


async def _warm(pool: Pool, role: str) -> None:
    try:
        await pool.zygote(role)
        log.info("the %s zygote is ready", role)
    except Problem as problem:
        # The next request that needs it tries again and gets the Problem.
        log.error("the %s zygote did not start: %s", role, problem.detail)
