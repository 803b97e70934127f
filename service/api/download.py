"""Files to take away: those that are there, and archives that are written for one answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Concatenate, ParamSpec

from fastapi.responses import StreamingResponse

from service.api.state import Services
from service.errors import StorageFull, StoreDamaged
from service.full_disk import FULL_DISK
from service.uninterrupted import uninterrupted
from service.work_folder import work_folder

P = ParamSpec("P")


def file_answer(file: BinaryIO, name: str, media_type: str) -> StreamingResponse:
    """The bytes of an open file, which may have no name any more, for download as `name`; closed in the end."""
    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return StreamingResponse(_chunks(file), media_type=media_type, headers=headers)


async def zip_answer(
    services: Services,
    id: str,
    name: str,
    write: Callable[Concatenate[Path, P], None],
    *args: P.args,
    **kwargs: P.kwargs,
) -> StreamingResponse:
    """What `write` writes of the Compilation `id` to the path that it gets first, for download as `name`.

    Raises StorageFull, and StoreDamaged for another OSError of `write`.
    """
    with work_folder(services.store.scratch, {}, (name,)) as folder:
        try:
            # To its end, even for a caller who is gone: it must not write into a folder that is removed.
            await uninterrupted(write, folder / name, *args, **kwargs)
        except OSError as error:
            if error.errno in FULL_DISK:
                raise StorageFull("The server's disk has no room for the archive. Try again later.") from error
            raise StoreDamaged(f"A file of compilation {id!r} is gone meanwhile: {error.strerror}.", id=id) from error
        file = (folder / name).open("rb")
    return file_answer(file, name, "application/zip")


def _chunks(file: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    with file:
        while data := file.read(size):
            yield data
