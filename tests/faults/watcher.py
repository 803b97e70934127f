"""Sees every write and every message of a server's processes before it happens, and can end the process or refuse it there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.wire import MAGIC
from tests.faults.watched import MESSAGES, OPENS, WRITES

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<Qqii")
_CONTINUE = 1
_AT_FDCWD = -100
_NAMES = {**WRITES, **MESSAGES, **{number: name for number, (name, _) in OPENS.items()}}
# Which arguments are a path, after which descriptor of a folder (None: the current one); of all others the first is a file.
_PATHS: dict[str, tuple[tuple[int | None, int], ...]] = {
    **dict.fromkeys(("truncate", "mkdir", "rmdir", "unlink", "chmod", "chown", "utimes", "open"), ((None, 0),)),
    **dict.fromkeys(("openat", "mkdirat", "unlinkat", "fchmodat", "utimensat"), ((0, 1),)),
    **dict.fromkeys(("rename", "link"), ((None, 0), (None, 1))),
    **dict.fromkeys(("renameat", "linkat", "renameat2"), ((0, 1), (2, 3))),
    "symlink": ((None, 1),),
}
# What is different each time, in names of files.
_VARIABLE = [
    (re.compile(r"[0-9a-f]{64}"), "DIGEST"),
    (re.compile(r"/[0-9a-f]{32}(?=/|$)"), "/CALLER"),
    (re.compile(r"objects/[0-9a-f]{2}"), "objects/XX"),
    (re.compile(r"work-\d+-\d+"), "work-N"),
    (re.compile(r"kernels/scratch/\d+"), "kernels/scratch/N"),
    (re.compile(r"upload-\w+"), "upload-N"),
    (re.compile(r"scratch/tmp\w+"), "scratch/tmpN"),
    (re.compile(r"kernel\d+\.o"), "kernelN.o"),
    (re.compile(r":\[\d+\]"), ""),
]
# The server makes and deletes many of these, and each is like the others.
_FILE_OF_WORKER = re.compile(r"work-N/[^/]+")


@dataclass(frozen=True)
class Call:
    """A system call that is about to happen: whose (``web``, ``zygote compile``, ``worker infer`` …), which, at what."""

    pid: int
    who: str
    name: str
    what: str
    durable: bool

    @property
    def is_message(self) -> bool:
        """A frame, a request for a fork or its answer, or a wake through a ring, at the side of a zygote or a worker."""
        return self.who != "web" and (self.name in MESSAGES.values() or "eventfd" in self.what)

    @property
    def site(self) -> str:
        """All calls of one site do the same for different requests."""
        return f"{self.who}: {self.name} {self.what}"


# What becomes of a call: it happens, it fails with this errno, or its process is killed before it.
Verdict = int | None
Judge = Callable[[Call], Verdict]
KILL = -1


class Watcher:
    """Decides about each call of the processes under one filter, in a thread of its own.

    `judge` is asked about each; it may be replaced at any time. `web` is the process that the others come from. `ended`
    is set when the last of them is gone.
    """

    def __init__(self, listener: int, web: int, data: Path, judge: Judge) -> None:
        self.judge = judge
        self.ended = threading.Event()
        self._listener = listener
        self._web = web
        self._data = data.resolve()
        self._who: dict[int, tuple[int, str]] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while not any(events & select.POLLHUP for _, events in poll.poll()):
            notification = bytearray(_NOTIFICATION.size)
            # The process may have been killed while it waited.
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._listener, _RECEIVE, notification)
                self._answer(*_NOTIFICATION.unpack(notification))
        os.close(self._listener)
        self.ended.set()

    def _answer(self, number: int, thread: int, _flags: int, call: int, _arch: int, _at: int, *arguments: int) -> None:
        seen = self._describe(thread, _NAMES[call], arguments)
        verdict = self.judge(seen)
        if verdict == KILL:
            os.kill(seen.pid, signal.SIGKILL)
            return
        answer = (0, 0, _CONTINUE) if verdict is None else (0, -verdict, 0)
        fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(number, *answer))

    def _describe(self, thread: int, name: str, arguments: tuple[int, ...]) -> Call:
        pid, who = self._whose(thread)
        paths = [self._path(pid, arguments, *at) for at in _PATHS.get(name, ())] or [self._open_file(pid, arguments[0])]
        if name in ("sendto", "sendmsg") and who != "web":
            paths = [self._message(pid, name, arguments)]
        durable = name not in MESSAGES.values() and any(path.startswith(str(self._data)) for path in paths)
        what = " -> ".join(paths).replace(f"{self._data}/", "").replace(str(self._data), "data")
        for pattern, replacement in _VARIABLE:
            what = pattern.sub(replacement, what)
        if who == "web" and name in ("openat", "unlinkat"):
            what = _FILE_OF_WORKER.sub("work-N/FILE", what)
        return Call(pid, who, name, what, durable)

    def _whose(self, thread: int) -> tuple[int, str]:
        if thread not in self._who:
            pid, parent = _of_status(thread, "Tgid"), _of_status(thread, "PPid")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            zygote = words[words.index(b"service.worker") + 1].decode() if b"service.worker" in words else "program"
            kind = "web" if pid == self._web else f"zygote {zygote}" if parent == self._web else f"worker {zygote}"
            if kind != "zygote program":
                # Between fork and exec a child still has its parent's name.
                self._who[thread] = (pid, kind)
            return pid, kind
        return self._who[thread]

    def _path(self, pid: int, arguments: tuple[int, ...], folder: int | None, index: int) -> str:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(arguments[index])
            path = os.fsdecode(memory.read(4096).partition(b"\0")[0])
            descriptor = _AT_FDCWD if folder is None else _signed(arguments[folder])
            start = f"/proc/{pid}/cwd" if descriptor == _AT_FDCWD else f"/proc/{pid}/fd/{descriptor}"
            return path if path.startswith("/") else f"{os.readlink(start)}/{path}"
        return "?"

    def _message(self, pid: int, name: str, arguments: tuple[int, ...]) -> str:
        """Which message it is: the event of a frame, or the operation of a zygote."""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            start, size = arguments[1], arguments[2]
            if name == "sendmsg":
                memory.seek(arguments[1] + 16)
                memory.seek(*struct.unpack("<Q", memory.read(8)))
                start, size = struct.unpack("<QQ", memory.read(16))
            memory.seek(start)
            message = memory.read(size)
            found = re.search(rb'"(?:event|op)": ?"(\w+)"', message)
            # What follows the head of a frame comes in calls of its own.
            is_blob = name == "sendto" and not message.startswith(MAGIC)
            return "blob" if is_blob or found is None else found[1].decode()
        return "?"

    def _open_file(self, pid: int, descriptor: int) -> str:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/fd/{descriptor}")
        return "?"


def _of_status(process: int, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise OSError(f"process {process} has no {field}")


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value & 0xFFFFFFFF


def receive_listener(channel: socket.socket) -> int:
    """The listener that a process under the filter hands over. Raises OSError when it could not."""
    with channel:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not descriptors:
        raise OSError("the process has no listener")
    return descriptors[0]
