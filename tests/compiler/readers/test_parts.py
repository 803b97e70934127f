"""The small parts that all readers share."""

from __future__ import annotations

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.readers.archive import Archive, ArchiveLimits
from service.compiler.readers.bounded_json import parse_json
from service.compiler.readers.inert_pickle import Call, Global
from service.compiler.readers.names import is_plain_name, is_plain_path
from service.compiler.readers.pt2_payloads import Payloads
from service.compiler.readers.pt2_schema import STRUCTS, UNIONS, check_value
from service.compiler.readers.refusal import damaged, shown, unsafe
from service.compiler.readers.script_sources import ScriptSources
from service.compiler.readers.tensors import ITEM_BYTES, Window, check_bools, check_window, contiguous_strides
from service.compiler.readers.torch_file import StoredTensor, open_torch_bytes
from service.errors import DamagedModel, UnsafeModel
from tests.hostile.pt2_files import honest_files, pack


def saved(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def test_what_is_shown_of_a_file_is_one_short_line() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("x" * 10_000)) < 200
    assert unsafe("It is bad", "x").extensions == {"where": "x"}
    assert damaged("It is broken").detail == "It is broken. Save the model again and send the new file."


@pytest.mark.parametrize(
    ("data", "error"), [(b"{", DamagedModel), (b"\xff", DamagedModel), (b"[" * 100_000, UnsafeModel)]
)
def test_json_is_parsed_under_limits(data: bytes, error: type[Exception]) -> None:
    assert parse_json(b'{"a": [1, Infinity]}', "x") == {"a": [1, float("inf")]}
    with pytest.raises(error):
        parse_json(data, "x")


def test_names_that_become_code_are_plain() -> None:
    assert all(is_plain_name(name) for name in ("x", "_y", "input", "args_0"))
    assert not any(
        is_plain_name(name) for name in ("", "1x", "a b", "lambda", "__class__", "\uff45xec", 'a"', None, "x" * 300)
    )
    assert all(is_plain_path(path) for path in ("a.b.0.weight", "layers.a-b", ""))
    assert not any(is_plain_path(path) for path in ('a"b', "a\\b", "a\nb", "a.__class__.b", 3))


@given(
    st.lists(st.integers(0, 4), max_size=4),
    st.lists(st.integers(0, 9), max_size=4),
    st.integers(0, 20),
    st.integers(0, 400),
)
@settings(max_examples=300, deadline=None)
def test_a_window_that_is_taken_lies_in_its_storage(
    sizes: list[int], strides: list[int], offset: int, size: int
) -> None:
    window = Window("float32", tuple(sizes), tuple(strides), offset)
    try:
        check_window(window, size, "x")
    except (DamagedModel, UnsafeModel):
        return
    torch.empty(size // 4).as_strided(sizes, strides, offset).clone()


def test_strides_without_gaps_are_torchs() -> None:
    assert contiguous_strides((2, 3, 4)) == torch.empty(2, 3, 4).stride()
    assert all(getattr(torch, name).itemsize == size for name, size in ITEM_BYTES.items())


def test_bools_are_0_or_1() -> None:
    check_bools(b"\x00\x01", "bool", "x")
    check_bools(b"\x02", "uint8", "x")
    with pytest.raises(DamagedModel):
        check_bools(b"\x02", "bool", "x")


def test_a_saved_tree_comes_back_with_its_tensors() -> None:
    shared = torch.arange(6.0)
    file = open_torch_bytes(
        saved({"a": [shared[:3], (shared[3:], 1)], "p": torch.nn.Parameter(shared)}), ArchiveLimits()
    )
    first, (second, one) = file.tree["a"]
    assert isinstance(first, StoredTensor)
    assert first.storage == second.storage
    assert (second.window.offset, one) == (3, 1)
    assert file.tree["p"].is_parameter
    assert file.storage(first) == shared.numpy().tobytes()


def test_what_is_no_tensor_stays_a_record() -> None:
    tree = open_torch_bytes(saved({"a": torch.nn.Linear(2, 2)}), ArchiveLimits()).tree
    assert isinstance(tree["a"], Call)
    assert tree["a"].function == Global("torch.nn.modules.linear", "Linear")


def test_a_tensor_on_another_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(torch.ones(2)).replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00cud")
    with pytest.raises((DamagedModel, UnsafeModel)):
        open_torch_bytes(data, ArchiveLimits())


def test_the_payloads_of_an_archive_are_found_by_name() -> None:
    with Archive(io.BytesIO(pack(honest_files())), ArchiveLimits()) as archive:
        payloads = Payloads(archive, "model", ArchiveLimits())
    assert set(payloads.weights) == {"dense.weight", "dense.bias"}
    assert set(payloads.constants) == {"table"}


def test_the_schema_is_that_of_pytorch() -> None:
    from torch._export.serde import schema

    for name, fields in {**STRUCTS, **UNIONS}.items():
        theirs = getattr(schema, name).__annotations__
        assert set(fields) <= set(theirs), name


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int", True), ("int", 1 << 70), ("bool", 1), ("float", "x"), ("name", "a b"), ("dtype", 99), ("SymInt", {}),
     ("Argument", {"as_int": 1, "as_bool": True}), ("[int]", {}), ("{name: SymInt}", []), ("Device", {"type": "meta"})],
)  # fmt: skip
def test_values_of_another_type_are_refused(kind: str, value: object) -> None:
    with pytest.raises((DamagedModel, UnsafeModel)):
        check_value(kind, value, "$")


def test_unknown_fields_are_left_out() -> None:
    assert check_value("TensorArgument", {"name": "x", "evil": 1}, "$") == {"name": "x"}


def test_a_damaged_table_of_sources_costs_only_the_lines() -> None:
    for table in (None, 3, (1, 2), ("FORMAT_WITH_STRING_TABLE", (), ((0, 1, 2),))):
        sources = ScriptSources({"code/a.py": ("x = 1\n", table)})
        assert sources.locate("code/a.py", 1) == "code/a.py:1: x = 1"
        assert sources.locate("code/a.py", 9) == "code/a.py:9"
        assert sources.assignment("y") is None
