"""``python -m tests.faults.watched CHANNEL_FD MODULE ARGUMENTS…``: runs a module, each of whose system calls can be stopped.

What changes files and what sends and receives messages asks a `tests.faults.watcher.Watcher` first, in this process and in
all that it starts: a seccomp filter passes these calls on to the listener, which goes over the channel to the test. x86-64.
"""

from __future__ import annotations

import ctypes
import os
import queue
import runpy
import socket
import struct
import sys
import threading

# Calls that change files, and those that are messages, by the numbers of x86-64.
WRITES = {
    1: "write", 18: "pwrite64", 20: "writev", 40: "sendfile", 74: "fsync", 75: "fdatasync", 76: "truncate",
    77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 88: "symlink", 90: "chmod",
    91: "fchmod", 92: "chown", 93: "fchown", 235: "utimes", 258: "mkdirat", 263: "unlinkat", 264: "renameat",
    265: "linkat", 268: "fchmodat", 280: "utimensat", 285: "fallocate", 296: "pwritev", 316: "renameat2",
    326: "copy_file_range",
}  # fmt: skip
MESSAGES = {44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg"}
# Watched where they make a file or empty it: the number, and which argument has the flags.
OPENS = {2: ("open", 1), 257: ("openat", 2)}

_LOAD, _JEQ, _JSET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_NO_NEW_PRIVS = 38


def build_filter() -> bytes:
    """The BPF program: the calls above are passed on, all others allowed."""

    def instruction(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("<HBBI", code, if_true, if_false, k)

    program = [instruction(_LOAD, 0)]
    for number in (*WRITES, *MESSAGES):
        program += [instruction(_JEQ, number, 0, 1), instruction(_RETURN, _NOTIFY)]
    for number, (_, argument) in OPENS.items():
        program += [
            instruction(_JEQ, number, 0, 4),
            instruction(_LOAD, 16 + 8 * argument),
            instruction(_JSET, os.O_CREAT | os.O_TRUNC, 0, 1),
            instruction(_RETURN, _NOTIFY),
            instruction(_RETURN, _ALLOW),
        ]
    return b"".join([*program, instruction(_RETURN, _ALLOW)])


def watch(channel: socket.socket) -> None:
    """Puts this thread, and all that it starts, under the filter; the listener goes over the channel. Raises OSError."""
    listeners: queue.SimpleQueue[int] = queue.SimpleQueue()
    # This thread exists before the filter, so that its own message is not stopped.
    sender = threading.Thread(target=lambda: socket.send_fds(channel, [b"x"], [listeners.get()]))
    sender.start()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    program = build_filter()
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    listener = libc.syscall(317, 1, _NEW_LISTENER | _WAIT_KILLABLE, ctypes.create_string_buffer(header, len(header)))
    if listener < 0:
        os.write(2, f"no listener: {os.strerror(ctypes.get_errno())}\n".encode())
        os._exit(70)
    listeners.put(listener)
    sender.join()
    os.close(listener)
    channel.close()


def main() -> None:
    """Runs the module under the filter."""
    _, channel, module, *arguments = sys.argv
    watch(socket.socket(fileno=int(channel)))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
