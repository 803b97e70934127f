"""TVM's exceptions as one readable sentence: without C++ frames, source paths and backtrace hints."""

from __future__ import annotations

import re

MAX_MESSAGE = 600

_FRAME = re.compile(r"^\s*(File \"|\d+: |at |\[[\d:]+\]|Stack trace|Traceback|\^+)")
_HINT = re.compile(r"^note: run with|^Some options for debugging|^An error occurred during the execution of TVM")
_PREFIX = re.compile(r"^(InternalError|tvm\.error\.\w+|[\w.]*Error|Check failed):\s*")
# What torch adds for its own developers.
_TORCH_TAIL = re.compile(r"\s*Use tlparse to see full graph\..*", re.DOTALL)


def readable_message(error: BaseException, limit: int = MAX_MESSAGE) -> str:
    """What `error` says, on one line of at most `limit` characters; its type's name if it says nothing."""
    lines = [line.strip() for line in _TORCH_TAIL.sub("", str(error)).splitlines()]
    kept = [line for line in lines if line and not _FRAME.match(line) and not _HINT.match(line)]
    text = " ".join(" ".join(kept).split())
    text = _PREFIX.sub("", text).strip()
    if not text:
        return type(error).__name__
    if len(text) > limit:
        return text[: limit - 1].rstrip() + "…"
    return text


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is an allocation that failed: Python's, C++'s or torch's."""
    text = str(error)
    signs = ("std::bad_alloc", "DefaultCPUAllocator", "can't allocate memory", "Cannot allocate memory")
    # The last is what CPython says when an extension had no memory left even for its exception.
    no_exception = isinstance(error, SystemError) and "without exception set" in text
    return isinstance(error, MemoryError) or any(sign in text for sign in signs) or no_exception
