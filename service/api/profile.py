"""GET /compile/{id}/profile: where the time of an Artifact goes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from service.api.ir_schemas import ProfileView
from service.api.problems import check_parameters
from service.api.state import ServicesDep

router = APIRouter(tags=["ir"])


@router.get("/compile/{id}/profile", response_model=ProfileView)
async def get_profile(
    id: str,
    request: Request,
    services: ServicesDep,
    runs: Annotated[int, Query(ge=1, le=1000, description="How many runs to time.")] = 50,
    sizes: Annotated[str | None, Query(description="Sizes for symbols: `batch:8,length:128`.")] = None,
) -> Response:
    """The time of each kernel over repeated runs on drawn inputs, beside the machine's measured peak.

    One thread. Kernels come with their source lines; the machine is measured in the same worker.
    """
    check_parameters(request, "runs", "sizes")
    return JSONResponse(await services.examinations.profile(id, runs, sizes))
