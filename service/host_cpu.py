"""What the CPU that this process runs on can do, as Linux says it."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def host_flags() -> frozenset[str]:
    """The flags line of /proc/cpuinfo; empty where there is none, as on Arm."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())


def missing_flags(needed: list[str]) -> list[str]:
    """Those of `needed` that this CPU lacks; none where it does not say what it has."""
    has = host_flags()
    return [flag for flag in needed if flag not in has] if has else []
