"""With how many threads a library runs: the library says so itself, and the process that serves it starts them."""

from __future__ import annotations

import os
from typing import Any

# The function of a library that gives the number; a library without it runs with one thread.
THREADS = "relaxd_threads"
ALL_CORES = 0


def threads_of(module: Any) -> int:
    """The number of threads that the library loaded as `module` asks for; 0 stands for all cores."""
    if not module.implements_function(THREADS, True):
        return 1
    return int(module.get_function(THREADS, True)())


def allow_threads(wanted: int) -> int:
    """Lets parallel loops of this process run with `wanted` threads, but no more than it has cores; how many these are.

    TVM starts its threads at the first parallel loop and keeps them: what is asked for later counts for nothing.
    """
    cores = len(os.sched_getaffinity(0))
    number = cores if wanted == ALL_CORES else min(wanted, cores)
    os.environ["TVM_NUM_THREADS"] = str(number)
    # Else the threads of all processes would share the first cores.
    os.environ["TVM_BIND_THREADS"] = "0"
    return number
