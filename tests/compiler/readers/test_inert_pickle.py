"""Pickles are read as records: values come back, calls do not happen."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.readers.inert_pickle import Call, Global, read_pickle
from service.errors import DamagedModel, UnsafeModel

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(VALUES, st.integers(2, 5))
@settings(max_examples=200, deadline=None)
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    read = read_pickle(pickle.dumps(value, protocol), "x")
    # Protocol 2 writes bytes as a call of `_codecs.encode`.
    assert read == value or protocol < 3


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_call_is_a_record(tmp_path: Path, protocol: int) -> None:
    read = read_pickle(pickle.dumps(Touch(tmp_path / "marker"), protocol), "x")
    assert isinstance(read, Call)
    assert isinstance(read.function, Global)
    assert read.function.name == "open"
    assert not (tmp_path / "marker").exists()


def test_state_items_and_keywords_are_kept() -> None:
    ordered = read_pickle(pickle.dumps(collections.OrderedDict(a=1), 2), "x")
    assert ordered.function == Global("collections", "OrderedDict")
    assert ordered.pairs == [("a", 1)]
    path = read_pickle(pickle.dumps(ValueError("x"), 4), "x")
    assert path.arguments == ("x",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"\x80\x02.",
        b"h\x05.",
        b"0.",
        b"}K\x01s.",
        b"K\x01K\x02b.",
        b"\x80\x02R.",
        b"]e.",
    ],
)
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises((DamagedModel, UnsafeModel)):
        read_pickle(data, "x")


@pytest.mark.parametrize("data", [b"\x82\x01.", b"(ios\nsystem\n.", b"P1\n.", b"\x97."])
def test_operations_that_no_file_of_pytorch_has_are_unsafe(data: bytes) -> None:
    with pytest.raises(UnsafeModel):
        read_pickle(data, "x")


@given(st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_pickle(data, "x")
    except (DamagedModel, UnsafeModel) as problem:
        assert problem.detail.endswith(".")  # noqa: PT017  both outcomes are right
