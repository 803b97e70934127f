"""GET /compile/{id}/repro.zip: what it takes to run a Compilation again outside of the server."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from service.api.download import zip_answer
from service.api.problems import check_parameters
from service.api.state import ServicesDep
from service.repro import write_repro

router = APIRouter(tags=["compile"])

_SUFFIXES = {"vm": "txt", "llvm": "ll", "asm": "s"}


@router.get(
    "/compile/{id}/repro.zip",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_repro(id: str, request: Request, services: ServicesDep) -> Response:
    """The model, the request, the IR of every step, versions, and a script that runs it again and compares.

    The script needs PyTorch and TVM from their registries, and neither a server nor relaxd.
    """
    check_parameters(request)
    compilation = services.compilations.get(id)
    uploaded = await asyncio.to_thread(services.compilations.uploaded, compilation)
    steps = (*compilation.steps, *compilation.results)
    texts = services.compilations.snapshots(compilation.id, [step.index for step in steps])
    names = [f"{step.index:03d}-{step.stage.value}.{_SUFFIXES.get(step.stage.value, 'py')}" for step in steps]
    shown = ((name, str(snapshot["text"])) for name, snapshot in zip(names, texts, strict=True))
    limits = services.settings.limits
    name = f"repro-{compilation.id[:12]}.zip"
    answer = await zip_answer(services, id, name, write_repro, compilation, uploaded, shown, limits)
    answer.headers["Cache-Control"] = "no-store"
    return answer
