"""What a worker process gives up before it touches anything uploaded.

The kernel enforces all of it, and none of it can be taken back by the process: resource limits, no core dumps,
no gain of privileges, death with the zygote.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

from service.nouns import Confinement

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def confine(limits: Confinement, parent: int) -> None:
    """Confines this process for good. `parent` is the pid of the zygote, whose death must end it. Raises OSError."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The zygote died before the line above: nobody would end this process any more.
        os._exit(1)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    # RLIMIT_DATA counts private writable memory, which RLIMIT_AS drowns in a gigabyte of mapped libraries.
    data = _private_bytes() + limits.memory_bytes
    _limit(resource.RLIMIT_DATA, data, data)
    # The soft limit sends SIGXCPU, which says why the process died; the hard one SIGKILL, should that be blocked.
    _limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 5)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes)
    _limit(resource.RLIMIT_CORE, 0, 0)


def _limit(kind: int, soft: int, hard: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _private_bytes() -> int:
    """What the kernel counts against RLIMIT_DATA now: the sixth field of statm is data plus stack, in pages."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
