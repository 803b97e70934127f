"""Where in a Compilation a worker was when it ended: as one phrase, and as the Problem of a crash or a timeout."""

from __future__ import annotations

import json
from pathlib import Path

from service.errors import DeadlineExceeded, JsonObject, WorkerCrashed

# In the work folder: what the worker notes of where it is, and what is left of it when the worker is gone.
POSITION_FILE = "position"
POSITION_BYTES = 512
MAX_NAME = 100
_NAMES = {"start": "before the import had begun", "import": "in the import", "build": "in the build"}


def phrase(doing: JsonObject) -> str:
    """What a worker was `doing` (``phase``, perhaps ``step``, ``pass`` and ``inner_pass``) in words."""
    inner = f", inside of TVM's {doing['inner_pass']}" if doing.get("inner_pass") else ""
    if doing.get("pass") is not None:
        return f"in step {doing['step']} (pass {doing['pass']!r}{inner})"
    return _NAMES.get(str(doing["phase"]), f"in phase {doing['phase']!r}") + inner


def crash(signal_name: str, doing: str) -> WorkerCrashed:
    """The Problem of a worker that died of a signal which it brought on itself."""
    return WorkerCrashed(
        f"The worker process died of {signal_name} {doing}. Only this request is affected.", signal=signal_name
    )


def too_slow(limit_s: float, doing: JsonObject) -> DeadlineExceeded:
    """The Problem of a Compilation that was stopped."""
    return DeadlineExceeded(
        f"The compilation was stopped after its limit of {limit_s:g} s {phrase(doing)}. Send a smaller model, or let "
        "the operator raise RELAXD_COMPILE_S.",
        limit_s=limit_s,
        **doing,
    )


def too_much_cpu(limit_cpu_s: float, doing: JsonObject) -> DeadlineExceeded:
    """The Problem of a Compilation whose worker the kernel has stopped."""
    return DeadlineExceeded(
        f"The compilation was stopped after its limit of {limit_cpu_s:g} CPU seconds in all {phrase(doing)}. Send a "
        "smaller model, or let the operator raise RELAXD_COMPILE_CPU_S.",
        limit_cpu_s=limit_cpu_s,
        **doing,
    )


def read_position(folder: Path) -> JsonObject:
    """What a worker that has ended noted last in its work folder: ``inner_pass`` and ``function``, or nothing.

    The worker is treated as hostile: what it wrote is cut, and anything but names is taken for nothing.
    """
    try:
        with (folder / POSITION_FILE).open("rb") as file:
            noted = json.loads(file.read(POSITION_BYTES).rstrip(b"\0 ") or b"null")
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(noted, dict):
        return {}
    return {name: noted[name] for name in ("inner_pass", "function") if _is_name(noted.get(name))}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable() and 0 < len(value) <= MAX_NAME
