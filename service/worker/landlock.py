"""The files of a worker: what it may read, write or run, by Landlock; everything else does not open.

Calling conventions: landlock(7), ``linux/landlock.h``. The three calls have the same numbers on all architectures.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_CREATE_RULESET_VERSION = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
_TRUNCATE = 1 << 14
READ = READ_FILE | READ_DIR
WRITE = READ_FILE | WRITE_FILE | _TRUNCATE
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | 1 << 15

# All rights over files that each version of the interface knows; a right that is not handled is not restricted.
_FS_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET = 0b11  # bind and connect of TCP, since version 4
_SCOPES = 0b11  # abstract Unix sockets and signals, since version 6


@dataclass(frozen=True)
class Rule:
    """Rights over a file, or over all that is beneath a directory. A path that does not exist is left out."""

    path: str
    rights: int


def version() -> int:
    """The version of the kernel's interface; 0 when there is none."""
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)))


def restrict(rules: Iterable[Rule]) -> int:
    """Restricts this thread (the only one, by now) for good; the version that was used. Raises OSError.

    no_new_privs must be set.
    """
    abi = version()
    if abi < 1:
        raise OSError("the kernel has no Landlock, or it is not enabled (see /sys/kernel/security/lsm)")
    handled = _FS_BY_VERSION[min(abi, 5)]
    attributes = struct.pack("<QQQ", handled, _NET if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _add(ruleset: int, rule: Rule, handled: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        descriptor = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
        try:
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            rights = rule.rights & handled & (~0 if is_directory else _FILE_RIGHTS)
            _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("<Qi", rights, descriptor), 0)
        finally:
            os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"landlock ({number}): {os.strerror(error)}")
    return result
