"""``python -m tests.faults.watched CHANNEL_FD MODULE ARGUMENTS…``: runs a module, each of whose system calls can be stopped.

What changes files and what sends and receives messages asks a `tests.faults.watcher.Watcher` first, in this process and in
all that it starts: a seccomp filter passes these calls on to the listener, which goes over the channel to the test. x86-64.
"""

from __future__ import annotations

import os
import queue
import runpy
import socket
import sys
import threading

from tests.bpf import (
    ALLOW,
    JEQ,
    JSET,
    LOAD,
    NEW_LISTENER,
    NOTIFY,
    RETURN,
    WAIT_KILLABLE,
    argument,
    install,
    instruction,
)

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


def build_filter() -> bytes:
    """The BPF program: the calls above are passed on, all others allowed."""
    program = [instruction(LOAD, 0)]
    for number in (*WRITES, *MESSAGES):
        program += [instruction(JEQ, number, 0, 1), instruction(RETURN, NOTIFY)]
    for number, (_, index) in OPENS.items():
        body = [
            argument(index),
            instruction(JSET, os.O_CREAT | os.O_TRUNC, 0, 1),
            instruction(RETURN, NOTIFY),
            instruction(RETURN, ALLOW),
        ]
        program += [instruction(JEQ, number, 0, len(body)), *body]
    return b"".join([*program, instruction(RETURN, ALLOW)])


def watch(channel: socket.socket) -> None:
    """Puts this thread, and all that it starts, under the filter; the listener goes over the channel. Raises OSError."""
    listeners: queue.SimpleQueue[int] = queue.SimpleQueue()
    # This thread exists before the filter, so that its own message is not stopped.
    sender = threading.Thread(target=lambda: socket.send_fds(channel, [b"x"], [listeners.get()]), daemon=True)
    sender.start()
    listener = install(build_filter(), NEW_LISTENER | WAIT_KILLABLE)
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
