"""The link role: object files to a shared library by `ld`, and a library to assembly by `objdump`.

The worker becomes that program: it may replace itself by these two, and can start no process beside itself.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import NoReturn

from service.errors import BuildFailed, JsonObject, Problem
from service.wire import Frame, FrameLimits, receive_frame, send_frame
from service.work_folder import PROGRAM_MESSAGES, PROGRAM_OUTPUT


def work(peer: socket.socket, _descriptors: list[int]) -> None:
    """Receives one request about files of the current folder, and runs it; answers ``failed`` where that cannot be.

    ``{"objects", "output"}`` asks for a library, ``{"op": "disassemble", "library"}`` for the text of one. How it ended
    is told by the exit code, what the program said is in the two files of `service.work_folder`.
    """
    frame = receive_frame(peer, FrameLimits())
    if frame is None:
        return
    peer.set_inheritable(False)
    try:
        become(*command_of(frame.body))
    except Problem as problem:
        send_frame(peer, Frame({"event": "failed", "problem": problem.to_json()}))


def command_of(request: JsonObject) -> tuple[str, list[str]]:
    """The program of a request and its arguments. Raises KeyError.

    Plain `ld` takes a tenth of the time of a compiler driver, and gives the same bytes every time.
    """
    if request.get("op") == "disassemble":
        # And the table of their lines.
        options = ["--disassemble", "--disassembler-options=intel", "--no-show-raw-insn", "--dwarf=decodedline"]
        return "objdump", [*options, str(request["library"])]
    objects = [str(name) for name in request["objects"]]
    # Archives among them whole.
    return "ld", ["-shared", "--build-id=none", "-o", str(request["output"]), "--whole-archive", *objects]


def become(program: str, arguments: list[str]) -> NoReturn:
    """Replaces this process. Raises BuildFailed where the program cannot be run."""
    found = shutil.which(program)
    if found is None:
        raise BuildFailed(f"The program `{program}` is not installed on the server. Tell the operator.")
    try:
        for descriptor, name in ((1, PROGRAM_OUTPUT), (2, PROGRAM_MESSAGES)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_TRUNC), descriptor)
        # By its real path: the sandbox lets this process run that file.
        os.execve(str(Path(found).resolve()), [program, *arguments], {})  # noqa: S606
    except OSError as error:
        raise BuildFailed(f"The program `{program}` could not be run: {error}.") from error
