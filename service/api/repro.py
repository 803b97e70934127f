"""GET /compile/{id}/repro.zip: what it takes to run a Compilation again outside of the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import BinaryIO

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from service.api.problems import check_parameters
from service.api.state import ServicesDep
from service.compilations import FULL_DISK
from service.errors import StorageFull, StoreDamaged
from service.repro import write_repro
from service.uninterrupted import uninterrupted
from service.work_folder import work_folder

router = APIRouter(tags=["compile"])

_FILE = "repro.zip"
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
    with work_folder(services.store.scratch, {}, (_FILE,)) as folder:
        try:
            # To its end, even for a caller who is gone: it must not write into a folder that is removed.
            await uninterrupted(write_repro, folder / _FILE, compilation, uploaded, shown, limits)
        except OSError as error:
            if error.errno in FULL_DISK:
                raise StorageFull("The server's disk has no room for the archive. Try again later.") from error
            raise StoreDamaged(f"A file of compilation {id!r} is gone meanwhile: {error.strerror}.", id=id) from error
        file = (folder / _FILE).open("rb")
    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": f'attachment; filename="repro-{compilation.id[:12]}.zip"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(chunks(file), media_type="application/zip", headers=headers)


def chunks(file: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    """The bytes of an open file, which may have no name any more, closed in the end."""
    with file:
        while data := file.read(size):
            yield data
