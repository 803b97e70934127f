"""What the CPU that this process runs on can do, as Linux says it."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def host_flags() -> frozenset[str]:
    """The flags line of /proc/cpuinfo; empty where there is none, as on Arm."""
    return frozenset(_first_line("flags").split())


@functools.cache
def cpu_model() -> str:
    """What the maker calls this CPU, as /proc/cpuinfo has it; empty where it says nothing."""
    return _first_line("model name").strip()


def _first_line(name: str) -> str:
    """What stands behind `name` in /proc/cpuinfo for the first CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(name)), "")


def missing_flags(needed: list[str]) -> list[str]:
    """Those of `needed` that this CPU lacks; none where it does not say what it has."""
    has = host_flags()
    return [flag for flag in needed if flag not in has] if has else []
