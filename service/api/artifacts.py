"""/artifacts: the manifest of a compiled model, and all of it to take away."""

from __future__ import annotations

import os

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from service.api.problems import check_parameters
from service.api.repro import chunks
from service.api.schemas import ArtifactView
from service.api.state import ServicesDep
from service.archive import write_archive
from service.uninterrupted import uninterrupted
from service.work_folder import work_folder

router = APIRouter(prefix="/artifacts", tags=["artifacts"])

_FILE = "artifact.zip"


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
    library = services.compilations.library(found.artifact)
    with work_folder(services.store.scratch, {}, (_FILE,)) as folder:
        await uninterrupted(write_archive, folder / _FILE, found.compilation, found.artifact, library)
        file = (folder / _FILE).open("rb")
    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": f'attachment; filename="{found.name[:40]}.zip"',
    }
    return StreamingResponse(chunks(file), media_type="application/zip", headers=headers)
