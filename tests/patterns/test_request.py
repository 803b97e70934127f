"""Patterns from the options of a request; those that can never match are refused by the field that makes them so."""

from __future__ import annotations

from typing import Any

import pytest

from service.json_schema import Flaw, find_flaw
from service.patterns import Node
from service.patterns.request import SCHEMA, SHORT_SCHEMA, check, parse


def parsed(*patterns: dict[str, Any]):
    assert find_flaw(list(patterns), SCHEMA) is None
    return parse({"pattern": [], "patterns": list(patterns)})


def test_the_short_form_is_a_chain_named_by_its_operators():
    short = ["dense", "add", "nn.relu"]
    assert find_flaw(short, SHORT_SCHEMA) is None
    (pattern,) = parse({"pattern": short, "patterns": []})
    assert (pattern.name, pattern.result, pattern.is_chain) == ("dense_add_relu", "[2]", True)
    assert [node.operators for node in pattern.nodes.values()] == [("matmul",), ("add",), ("nn.relu",)]
    assert [node.operands for node in pattern.nodes.values()] == [(), ("[0]",), ("[1]",)]


def test_a_graph_has_named_nodes_and_finds_its_result():
    (pattern,) = parsed(
        {
            "name": "gate",
            "nodes": {
                "x": {"dtype": "float32", "shape": ["n", 8, "*"]},
                "s": {"op": ["sigmoid", "tanh"], "args": ["x"], "single_use": False},
                "y": {"op": "mul", "args": ["s", "_"]},
            },
        }
    )
    assert pattern.result == "y"
    assert pattern.nodes["x"] == Node("x", shape=("n", 8, "*"), rank=3, dtype="float32")
    assert pattern.nodes["s"] == Node("s", ("sigmoid", "tanh"), ("x",), single_use=False)
    assert pattern.nodes["y"].operands == ("s", None)
    assert [node.name for node in pattern.operators()] == ["s", "y"]
    assert set(pattern.rooted_at("s").nodes) == {"s", "x"}


def test_higher_priorities_come_first_and_equal_ones_in_order():
    chain = {"chain": ["add"]}
    given = [{"name": "a", **chain}, {"name": "b", "priority": 2, **chain}, {"name": "c", **chain}]
    assert [pattern.name for pattern in parsed(*given)] == ["b", "a", "c"]


ADD = {"op": "add"}


@pytest.mark.parametrize(
    ("pattern", "path", "words"),
    [
        ({}, "", "either `chain` or `nodes`"),
        ({"chain": ["add"], "nodes": {"a": ADD}}, "", "either `chain` or `nodes`"),
        ({"chain": ["add"], "result": "a"}, ".result", "is for `nodes`"),
        ({"chain": ["matmull"]}, ".chain[0]", "did you mean 'matmul'"),
        ({"chain": [{"op": ["add", "nonsense"]}]}, ".chain[0].op[1]", "no operator of Relax"),
        ({"chain": ["add", "nn.batch_norm"]}, ".chain[1]", "gives several results"),
        ({"chain": ["add", "zeros"]}, ".chain[1]", "reads no tensor"),
        ({"chain": [{"op": "add", "constant": True}]}, ".chain[0].constant", "never a constant"),
        ({"chain": [{"op": "add", "single_use": True}]}, ".chain[0].single_use", "the result of a group"),
        ({"chain": [{"op": "add", "shape": [1, 2], "rank": 3}]}, ".chain[0].rank", "the shape has 2"),
        ({"chain": [{"op": "add", "dtype": "int32"}, {"op": "relu", "dtype": "float32"}]}, ".chain[1].dtype", "can never match"),
        ({"nodes": {"x": {}}}, ".nodes", "nothing to group"),
        ({"nodes": {"a": {"op": "add", "args": ["x"]}}}, ".nodes.a.args[0]", "no node of the pattern"),
        ({"nodes": {"a": {"op": "relu", "args": ["_", "_"]}}}, ".nodes.a.args", "has 1 operands"),
        ({"nodes": {"a": {"args": ["x"]}, "x": {}, "b": {"op": "relu", "args": ["a"]}}}, ".nodes.a.args", "nodes with an `op`"),
        ({"nodes": {"a": {"op": "relu", "args": ["b"]}, "b": {"op": "tanh", "args": ["a"]}}}, ".nodes", "has a cycle"),
        ({"nodes": {"a": {"op": "relu", "args": ["a"]}, "b": {"op": "tanh", "args": ["a"]}}}, ".nodes.a.args[0]", "makes a cycle"),
        ({"nodes": {"a": {"op": "relu"}, "b": {"op": "tanh"}}}, ".nodes", "several results \\(a, b\\)"),
        ({"nodes": {"a": {"op": "relu"}, "b": {"op": "tanh"}}, "result": "a"}, ".nodes.b", "not read on the way to the result"),
        ({"nodes": {"a": {"op": "relu"}, "x": {}}, "result": "x"}, ".result", "no node with an operator"),
        ({"nodes": {"a": {"op": "relu"}, "b": {"op": "tanh", "args": ["a"]}}, "result": "a"}, ".result", "another node of the pattern reads"),
        ({"nodes": {"a": {"op": "relu"}, "unused": {"rank": 1}}}, ".nodes.unused", "not read on the way"),
    ],
)  # fmt: skip
def test_a_pattern_that_can_never_match_is_refused_by_the_field_that_makes_it_so(pattern, path, words):
    with pytest.raises(Flaw, match=words) as caught:
        parsed({"name": "first", "chain": ["add"]}, {"name": "p", **pattern})
    assert caught.value.path.startswith(f"patterns[1]{path}")


def test_names_are_given_once_and_one_form_is_used():
    with pytest.raises(Flaw, match="each needs its own"):
        parsed({"name": "a", "chain": ["add"]}, {"name": "a", "chain": ["relu"]})
    for options in (
        {"pattern": [], "patterns": []},
        {"pattern": ["add"], "patterns": [{"name": "a", "chain": ["add"]}]},
    ):
        with pytest.raises(Flaw, match="must be given, or the short form"):
            check(options)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ({"name": "1a", "chain": ["add"]}, "[0].name"),
        ({"name": "a", "chain": []}, "[0].chain"),
        ({"name": "a", "chain": ["add"] * 33}, "[0].chain"),
        ({"name": "a", "chain": [{"op": "add", "args": ["_"]}]}, "[0].chain[0].args"),
        ({"name": "a", "chain": ["add"], "priority": 1.5}, "[0].priority"),
        ({"name": "a", "nodes": {"m": {"op": "add", "dtype": "f32"}}}, "[0].nodes.m.dtype"),
        ({"name": "a", "nodes": {"m": {"op": "add", "shape": ["n", -1]}}}, "[0].nodes.m.shape[1]"),
        ({"name": "a", "nodes": {"m": {"op": "add", "shape": ["a b"]}}}, "[0].nodes.m.shape[0]"),
    ],
)
def test_the_schema_refuses_what_is_no_pattern(pattern, path):
    assert find_flaw([pattern], SCHEMA).path == path
