"""The one boundary at which exceptions of tvm, torch and the system become Problems."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

from service.errors import InternalError, MemoryLimitExceeded, Problem, StorageFull
from service.full_disk import FULL_DISK
from service.nouns import Limits
from service.runtime.tvm_errors import is_out_of_memory, readable_message

# What no model can cause. Other numbers are about the file that was read, such as EINVAL for one that is cut short.
_SYSTEM_FAULTS = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
    errno.ENOENT,
)


@contextlib.contextmanager
def boundary(problem: type[Problem], sentence: str, limits: Limits, **extensions: Any) -> Iterator[None]:
    """Turns any exception from its body into `problem`, whose detail is `sentence` and what the exception says.

    A Problem passes as it is. Lack of memory becomes MemoryLimitExceeded, lack of disk StorageFull.
    """
    try:
        yield
    except Problem:
        raise
    except Exception as error:
        raise _translate(error, problem, sentence, limits, extensions) from error


def _translate(
    error: Exception, problem: type[Problem], sentence: str, limits: Limits, extensions: dict[str, Any]
) -> Problem:
    if is_out_of_memory(error):
        return MemoryLimitExceeded(
            f"{sentence}: it needs more memory than the limit of {limits.compile_memory_bytes} bytes. "
            "Use a smaller model or ask the operator to raise the limit.",
            limit_bytes=limits.compile_memory_bytes,
            **extensions,
        )
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return StorageFull(f"{sentence}: the server's disk is full. Try again later or tell the operator.")
    if isinstance(error, OSError) and error.errno in _SYSTEM_FAULTS:
        return InternalError(f"{sentence}: the system refused {error.strerror!r}. Tell the operator.", **extensions)
    if isinstance(error, RecursionError):
        return problem(f"{sentence}: the model is nested too deeply. Split it into smaller modules.", **extensions)
    return problem(f"{sentence}: {readable_message(error)}", **extensions)
