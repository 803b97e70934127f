"""Treespecs keep their leaves and lose every container that would be looked up."""

from __future__ import annotations

import collections
import json
from typing import Any

import pytest
import torch.utils._pytree as pytree
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.readers.trees import check_call_tree, check_tree
from service.errors import DamagedModel, UnsafeModel

VALUES = st.recursive(
    st.integers(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3),
        st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3).map(collections.OrderedDict),
    ),
    max_leaves=10,
)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_builtin_containers_come_through_unchanged(value: Any) -> None:
    leaves, spec = pytree.tree_flatten(value)
    text = pytree.treespec_dumps(spec)
    assert pytree.tree_unflatten(leaves, pytree.treespec_loads(check_tree(text, "x"))) == value


@pytest.mark.parametrize(
    "kind", ["collections.namedtuple", "collections.defaultdict", "evil.module.Class", "torch.Size"]
)
def test_other_containers_become_tuples(kind: str) -> None:
    leaf = {"type": None, "context": None, "children_spec": []}
    text = json.dumps([1, {"type": kind, "context": '"evil"', "children_spec": [leaf, leaf]}])
    assert pytree.tree_unflatten([1, 2], pytree.treespec_loads(check_tree(text, "x"))) == (1, 2)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[1]", "[2, {}]", "[1, []]", '[1, {"type": null}]', '[1, {"type": 3, "children_spec": []}]', "{}", "3"],
)
def test_what_is_no_treespec_is_damage(text: str) -> None:
    with pytest.raises(DamagedModel):
        check_tree(text, "x")


def _call(names: list[str]) -> str:
    leaf = {"type": None, "context": None, "children_spec": []}
    kwargs = {"type": "builtins.dict", "context": json.dumps(names), "children_spec": [leaf] * len(names)}
    args = {"type": "builtins.tuple", "context": "null", "children_spec": []}
    return json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [args, kwargs]}])


def test_the_names_of_a_call_must_be_plain() -> None:
    assert check_call_tree(_call(["scale", "x_1"]), "x")
    for name in ("a b", "lambda", "x=1", "__class__", "\uff45val", ""):
        with pytest.raises(UnsafeModel):
            check_call_tree(_call([name]), "x")


@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
    )
)
@settings(max_examples=200, deadline=None)
def test_any_json_is_refused_cleanly(value: Any) -> None:
    with pytest.raises((DamagedModel, UnsafeModel)):
        check_tree(json.dumps(value), "x")
