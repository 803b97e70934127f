"""TVM's messages become one bounded line without frames."""

from __future__ import annotations

import pytest

from service.runtime.tvm_errors import is_out_of_memory, readable_message

FRAMES = """Traceback (most recent call last):
  File "/project/src/relax/a.cc", line 7, in tvm::f()
  0: tvm::relax::g()
InternalError: Check failed: (a == b) is false: the shapes
differ
note: run with `TVM_BACKTRACE=1` environment variable to display a backtrace."""


def test_frames_and_hints_are_left_out() -> None:
    message = readable_message(RuntimeError(FRAMES))
    assert "the shapes differ" in message
    assert "/project/src" not in message
    assert "note:" not in message
    assert "\n" not in message


def test_the_length_is_bounded() -> None:
    assert len(readable_message(ValueError("x" * 9000))) == 600


def test_an_error_without_words_is_named() -> None:
    assert readable_message(KeyError()) == "KeyError"


def test_hints_for_developers_of_torch_are_left_out() -> None:
    said = "It cannot be.\n\nUse tlparse to see full graph. (https://example.org/tlparse)"
    assert readable_message(RuntimeError(said)) == "It cannot be."


@pytest.mark.parametrize(
    ("error", "expected"),
    [(MemoryError(), True), (RuntimeError("std::bad_alloc"), True), (RuntimeError("other"), False)],
)
def test_lack_of_memory_is_recognised(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
