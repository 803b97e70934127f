"""Seccomp filters for tests: instructions of BPF, and putting a thread under them. x86-64."""

from __future__ import annotations

import ctypes
import os
import struct

LOAD, JEQ, JSET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
EPERM, ENOSYS = 0x00050001, 0x00050026
NEW_LISTENER, WAIT_KILLABLE = 1 << 3, 1 << 5
_NO_NEW_PRIVS, _SECCOMP = 38, 317


def instruction(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction."""
    return struct.pack("<HBBI", code, if_true, if_false, k)


def argument(index: int) -> bytes:
    """Loads the low half of an argument of the call."""
    return instruction(LOAD, 16 + 8 * index)


def install(program: bytes, flags: int = 0) -> int:
    """Puts this thread, and all that it starts, under the filter; what seccomp(2) gives. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    result = int(libc.syscall(_SECCOMP, 1, flags, ctypes.create_string_buffer(header, len(header))))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
    return result
