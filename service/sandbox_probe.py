"""What the sandbox of the workers is on this machine, found out before anything is served."""

from __future__ import annotations

import asyncio
import json
import sys

from service.errors import InternalError
from service.pool import zygote_environment


async def probe_sandbox() -> dict[str, dict[str, str]]:
    """The state of each layer of the sandbox on this machine, by role: ``on`` or why not. Raises InternalError."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "service.worker", "probe"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=zygote_environment(),
    )
    output, _ = await process.communicate()
    try:
        layers: dict[str, dict[str, str]] = json.loads(output)
    except ValueError as error:
        raise InternalError(
            "The probe of the sandbox ended without an answer; its error output is in the log."
        ) from error
    return layers
