"""What the routes share: one of each per server, made at start-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from service.admission import Lists
from service.bisection import Bisections
from service.compilations import Compilations
from service.examinations import Examinations
from service.fronts import Fronts
from service.inspections import Inspections
from service.pool import Pool
from service.publications import Finder, Publications
from service.retention import Retention
from service.sessions import Sessions
from service.settings import Settings
from service.statistics import Statistics
from service.store import Store


@dataclass(frozen=True)
class Services:
    """The parts of a running server; `sandbox` has the state of each layer by the role of worker."""

    settings: Settings
    store: Store
    pool: Pool
    compilations: Compilations
    sessions: Sessions
    inspections: Inspections
    examinations: Examinations
    bisections: Bisections
    publications: Publications
    retention: Retention
    statistics: Statistics
    sandbox: dict[str, dict[str, str]]
    fronts: Fronts
    lists: Lists


class InferenceServices(Protocol):
    """What of it an inference needs, in any web process."""

    @property
    def settings(self) -> Settings: ...
    @property
    def publications(self) -> Finder: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def statistics(self) -> Statistics: ...


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(_services)]
