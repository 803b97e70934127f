"""Foreign exceptions are mapped once, and the map is total."""

from __future__ import annotations

import errno

import pytest

from service.compiler.foreign import boundary
from service.errors import (
    BuildFailed,
    InternalError,
    MemoryLimitExceeded,
    PassFailed,
    Problem,
    StorageFull,
    UnknownPass,
)
from service.nouns import Limits


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ValueError("x"), PassFailed),
        (RuntimeError("x"), PassFailed),
        (RecursionError(), PassFailed),
        (AssertionError(), PassFailed),
        (KeyError("x"), PassFailed),
        (MemoryError(), MemoryLimitExceeded),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryLimitExceeded),
        (OSError(errno.ENOSPC, "No space left on device"), StorageFull),
        (PermissionError(errno.EACCES, "Permission denied"), InternalError),
        (UnknownPass("x"), UnknownPass),
    ],
)
def test_every_exception_becomes_a_problem(error: Exception, problem: type[Problem]) -> None:
    with pytest.raises(Problem) as caught, boundary(PassFailed, "Pass 'p' failed", Limits(), step=3):
        raise error
    assert type(caught.value) is problem


def test_the_extensions_and_the_sentence_are_kept() -> None:
    with pytest.raises(BuildFailed) as caught, boundary(BuildFailed, "It failed", Limits(), step=3):
        raise ValueError("because")
    assert caught.value.detail == "It failed: because"
    assert caught.value.extensions == {"step": 3}
