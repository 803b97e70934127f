"""The link role: object files to a shared library by `ld`, and a library to assembly by `objdump`.

In a process that may start these two programs and do little else.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

from service.errors import BuildFailed, Problem
from service.wire import Frame, FrameLimits, receive_frame, send_frame

LINK_S = 120


def work(peer: socket.socket, _descriptors: list[int]) -> None:
    """Receives one request about files of the current folder, answers ``linked``, ``disassembled`` or ``failed``.

    ``{"objects", "output"}`` asks for a library, ``{"op": "disassemble", "library"}`` for the text of one.
    """
    frame = receive_frame(peer, FrameLimits())
    if frame is None:
        return
    try:
        if frame.body.get("op") == "disassemble":
            answer = Frame({"event": "disassembled"}, (disassemble(str(frame.body["library"])),))
        else:
            link([str(name) for name in frame.body["objects"]], str(frame.body["output"]))
            answer = Frame({"event": "linked"})
    except Problem as problem:
        answer = Frame({"event": "failed", "problem": problem.to_json()})
    send_frame(peer, answer)


def link(objects: list[str], output: str) -> None:
    """Plain `ld`: a tenth of the time of a compiler driver, and the same bytes every time. Raises BuildFailed."""
    _run("ld", ["-shared", "--build-id=none", "-o", output, *objects])


def disassemble(library: str) -> bytes:
    """The instructions of a shared library in Intel's syntax, as `objdump` prints them. Raises BuildFailed."""
    return _run("objdump", ["--disassemble", "--disassembler-options=intel", "--no-show-raw-insn", library])


def _run(program: str, arguments: list[str]) -> bytes:
    found = shutil.which(program)
    if found is None:
        raise BuildFailed(f"The program `{program}` is not installed on the server. Tell the operator.")
    # By its real path: the sandbox lets this process run that file.
    command = [str(Path(found).resolve()), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=LINK_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"The program `{program}` could not be run: {error}.") from error
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip()[:300]
        raise BuildFailed(f"The program `{program}` failed: {message}")
    return done.stdout
