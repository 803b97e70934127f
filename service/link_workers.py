"""What needs a program beside TVM: linking a library, and its assembly. Each by a worker that becomes that program."""

from __future__ import annotations

import asyncio
from pathlib import Path

from service.errors import BuildFailed, InternalError, JsonObject
from service.nouns import Confinement, Limits
from service.pool import Deadline, Pool, WorkerGone, checked
from service.wire import Frame, FrameLimits
from service.work_folder import LIBRARY, PROGRAM_FILES, PROGRAM_MESSAGES, PROGRAM_OUTPUT, work_folder
from service.worker_user import worker_uid

MEMORY_BYTES = 4 << 30
MAX_JSON = 1 << 20
MAX_MESSAGE = 300


async def link(pool: Pool, folder: Path, objects: list[str], library: str, limits: Limits) -> None:
    """Links object files of a work folder to a library there. Raises BuildFailed, or what became of the worker."""
    writable = (library, *PROGRAM_FILES)
    confinement = Confinement(MEMORY_BYTES, limits.link_s, limits.library_bytes, str(folder), writable, worker_uid())
    deadline = Deadline(limits.link_s, f"Linking the library was stopped after its limit of {limits.link_s} s.")
    await _run(pool, confinement, deadline, {"objects": objects, "output": library}, "while it linked")


async def disassemble(pool: Pool, scratch: Path, library: Path, limits: Limits) -> str:
    """The instructions of a library in Intel's syntax, as `objdump` prints them, up to `ir_bytes`.

    Raises BuildFailed, DeadlineExceeded, or what became of the worker.
    """
    with work_folder(scratch, {LIBRARY: library}, PROGRAM_FILES) as folder:
        seconds = limits.examine_s
        confinement = Confinement(MEMORY_BYTES, seconds, limits.ir_bytes, str(folder), PROGRAM_FILES, worker_uid())
        deadline = Deadline(seconds, f"Disassembling the library was stopped after {seconds} s.")
        request = {"op": "disassemble", "library": LIBRARY}
        await _run(pool, confinement, deadline, request, "while it disassembled")
        return await asyncio.to_thread((folder / PROGRAM_OUTPUT).read_text, "ascii", "replace")


async def _run(pool: Pool, confinement: Confinement, deadline: Deadline, request: JsonObject, doing: str) -> None:
    async with pool.lend("link", confinement, FrameLimits(MAX_JSON, 0), deadline, doing) as worker:
        await worker.send(Frame(request))
        try:
            # It says something only where it could not become the program.
            checked(await worker.receive(), "failed")
        except WorkerGone:
            status = await asyncio.shield(worker.exited)
        else:
            raise InternalError("The link worker sent a message that makes no sense.")
        if status is None or status < 0:
            raise WorkerGone("the program ended by a signal")
    if status != 0:
        program = "objdump" if "op" in request else "ld"
        with Path(confinement.work_dir, PROGRAM_MESSAGES).open("rb") as file:
            message = file.read(MAX_MESSAGE).decode(errors="replace").strip()
        raise BuildFailed(f"The program `{program}` failed: {message or f'exit code {status}'}")
