"""The link role: object files to a shared library, by `ld` in a process that may start it and do little else."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

from service.errors import BuildFailed, Problem
from service.wire import Frame, FrameLimits, receive_frame, send_frame

LINK_S = 120


def work(peer: socket.socket) -> None:
    """Receives ``{"objects", "output"}``, names in the current folder, answers ``linked`` or ``failed``."""
    frame = receive_frame(peer, FrameLimits())
    if frame is None:
        return
    try:
        link([str(name) for name in frame.body["objects"]], str(frame.body["output"]))
        answer = Frame({"event": "linked"})
    except Problem as problem:
        answer = Frame({"event": "failed", "problem": problem.to_json()})
    send_frame(peer, answer)


def link(objects: list[str], output: str) -> None:
    """Plain `ld`: a tenth of the time of a compiler driver, and the same bytes every time. Raises BuildFailed."""
    linker = shutil.which("ld")
    if linker is None:
        raise BuildFailed("The linker `ld` is not installed on the server. Tell the operator.")
    # By its real path: the sandbox lets this process run that file and no other.
    command = [str(Path(linker).resolve()), "-shared", "--build-id=none", "-o", output, *objects]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LINK_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"The linker could not be run: {error}.") from error
    if done.returncode != 0:
        raise BuildFailed(f"The linker failed: {done.stderr.strip()[:300]}")
