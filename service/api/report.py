"""GET /compile/{id}/report.html: a Compilation as one page that needs no server."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from service.api.browsers import STYLED
from service.api.problems import check_parameters
from service.api.state import ServicesDep
from service.errors import Problem
from service.html_report import render

router = APIRouter(tags=["compile"])

PROFILE_RUNS = 20


@router.get("/compile/{id}/report.html", response_class=HTMLResponse)
async def get_report(
    id: str,
    request: Request,
    services: ServicesDep,
    profile: Annotated[bool, Query(description="Also measure where the time of the library goes.")] = False,
) -> Response:
    """Request, steps with IR and differences, numbers, timings, versions, and the Problem, as one HTML file.

    Without scripts and without anything from the network. What is too long is cut, and the page says so.
    """
    check_parameters(request, "profile")
    compilation = services.compilations.get(id)
    measured, note = None, None
    if profile:
        try:
            measured = await services.examinations.profile(id, PROFILE_RUNS, None)
        except Problem as problem:
            note = f"It could not be measured: {problem.detail}"
    steps = (*compilation.steps, *compilation.results)
    snapshots = services.compilations.snapshots(compilation.id, [step.index for step in steps])
    page = await asyncio.to_thread(render, compilation, snapshots, services.settings.limits, measured, note)
    # Also for a browser that shows it from here: what is in it comes from strangers.
    return HTMLResponse(page, headers=STYLED)
