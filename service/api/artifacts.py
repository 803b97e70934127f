"""/artifacts: the manifest of a compiled model, and all of it to take away."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from service.api.download import zip_answer
from service.api.problems import check_parameters
from service.api.schemas import ArtifactView
from service.api.state import ServicesDep
from service.archive import write_archive

router = APIRouter(prefix="/artifacts", tags=["artifacts"])


@router.get("/{id}", response_model=ArtifactView)
async def get_artifact(id: str, request: Request, services: ServicesDep) -> Response:
    """What a loader must know of a library: Signature, CPU, toolchain, tolerances. `id` may be a published name."""
    check_parameters(request)
    return JSONResponse(services.publications.find(id).artifact.to_json())


@router.get(
    "/{id}/archive",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_archive(id: str, request: Request, services: ServicesDep) -> Response:
    """The library with its weights, the manifest, and a script that runs it with numpy and TVM's runtime alone."""
    check_parameters(request)
    found = services.publications.find(id)
    library = await asyncio.to_thread(services.compilations.library, found.artifact)
    name = f"{found.name[:40]}.zip"
    compilation = found.compilation
    return await zip_answer(services, compilation.id, name, write_archive, compilation, found.artifact, library)
