"""``python -m tests.hostile.battery ROLE [UID]``: runs all hostile behaviours, each in a process confined as that role.

It prints one line of JSON for each: what became of it. The processes are forked, as a zygote forks its workers; with UID
they become that user. What they find is told by the environment, see `tests.hostile.behaviours`; BEHAVIOURS
there chooses some of them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from service.nouns import Confinement
from service.worker.sandbox import confine, missing
from tests.hostile.behaviours import BEHAVIOURS

MEMORY_BYTES, CPU_S, FILE_BYTES = 256 << 20, 1, 1 << 20
SECONDS = 60.0


def call(number: int, *arguments: object) -> int:
    """A system call by its number. Raises OSError."""
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def harm() -> None:
    os.write(1, b"HARM\n")


def misbehave(code: str, role: str, uid: int | None, parent: int) -> NoReturn:
    """Confines this process and runs the code in it."""
    names: dict[str, Any] = {
        "SECRET": os.environ["SECRET"], "VICTIM": int(os.environ["VICTIM"]), "PORT": int(os.environ["PORT"]),
        "UNIX": os.environ["UNIX"], "SIBLING": os.environ["SIBLING"], "call": call, "harm": harm, "ctypes": ctypes,
        "os": os, "signal": signal, "socket": socket, "struct": struct, "sys": sys, "time": time,
        "libc": ctypes.CDLL(None, use_errno=True),
    }  # fmt: skip
    try:
        os.setsid()
        layers = confine(role, Confinement(MEMORY_BYTES, CPU_S, FILE_BYTES, os.getcwd(), ("slot",), uid), parent)
        if missing(layers):
            os.write(1, f"HARM: {missing(layers)}\n".encode())
        exec(code, names)
    except SystemExit:
        pass
    except BaseException as error:  # noqa: BLE001
        os.write(1, f"{type(error).__name__}: {error}"[:200].encode())
        if isinstance(error, (NameError, SyntaxError, ImportError, AttributeError)):
            os.write(1, b" HARM: the behaviour itself is broken\n")
    os._exit(1)


def try_one(code: str, role: str, uid: int | None, folder: Path) -> dict[str, Any]:
    """One behaviour: its output, its end, its time, and what it has left in its folder."""
    slot = folder / "slot"
    slot.touch()
    if uid is not None:
        folder.chmod(0o755)
        os.chown(slot, uid, uid)
    os.chdir(folder)
    reader, writer = os.pipe()
    parent, start = os.getpid(), time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.dup2(writer, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.close(writer)
        misbehave(code, role, uid, parent)
    os.close(writer)
    status = wait(pid, start)
    # What it has started and left is in its session; the zombies of these are our children no more.
    with os.fdopen(reader, "rb") as pipe:
        output = pipe.read(4096).decode(errors="replace")
    return {
        "output": output,
        "status": os.waitstatus_to_exitcode(status) if status is not None else None,
        "seconds": round(time.monotonic() - start, 3),
        "left": sorted(path.name for path in folder.iterdir()),
        "slot_bytes": slot.stat().st_size if slot.exists() else None,
    }


def wait(pid: int, start: float) -> int | None:
    """The status of a process, and None for one that has to be killed. Its group ends with it, as a zygote does that."""
    while time.monotonic() - start < SECONDS:
        # Not reaped yet: its number cannot be another's.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            kill_group(pid)
            return os.waitpid(pid, 0)[1]
        time.sleep(0.002)
    kill_group(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def main(role: str, uid: int | None) -> None:
    """Runs all of them."""
    with tempfile.TemporaryDirectory(dir=os.environ["FOLDERS"]) as folders:
        Path(folders).chmod(0o755)
        chosen = json.loads(os.environ.get("BEHAVIOURS", json.dumps(list(BEHAVIOURS))))
        for number, name in enumerate(chosen):
            folder = Path(folders, str(number))
            folder.mkdir()
            sys.stdout.write(json.dumps({"name": name, **try_one(BEHAVIOURS[name], role, uid, folder)}) + "\n")
        os.chdir("/")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
