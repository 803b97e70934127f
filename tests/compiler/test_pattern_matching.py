"""Patterns are found wherever they stand; for what nearly matches, the node and the constraint are named."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from service.compiler.pattern_matching import Match, Matcher, Miss, name_of
from service.patterns.request import parse
from tests.compiler.conftest import module_of

HEAD = "@I.ir_module\nclass Module:\n    @R.function\n    def main("
BODY = """):
        with R.dataflow():
"""


def matcher(parameters: str, *bindings: str) -> Matcher:
    """A matcher of a function with these bindings, the last of which is its result `gv`."""
    lines = "".join(f"            {line}\n" for line in (*bindings, "R.output(gv)"))
    return Matcher(module_of(HEAD + parameters + BODY + lines + "        return gv\n")["main"])


def pattern(*chain: Any, **rest: Any) -> Any:
    given = {"name": "p", **({"chain": list(chain)} if chain else {}), **rest}
    return parse({"pattern": [], "patterns": [given]})[0]


def at(found: Matcher, name: str) -> Any:
    return next(var for var in found.variables if name_of(var) == name)


X = 'x: R.Tensor((4, 8), "float32")'
DENSE = f'{X}, w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")'
STEPS = ("lv = R.matmul(x, w)", "lv1 = R.add(b, lv)", "gv = R.nn.relu(lv1)")


def miss(found: Matcher, wanted: Any, name: str = "gv") -> Miss:
    result = found.match(wanted, at(found, name))
    assert isinstance(result, Miss)
    return result


def test_a_chain_is_found_at_any_position_of_the_operands() -> None:
    found = matcher(DENSE, *STEPS)
    match = found.match(pattern("dense", "add", "relu"), at(found, "gv"))
    assert isinstance(match, Match)
    assert {name: name_of(expr) for name, expr in match.nodes.items()} == {"[0]": "lv", "[1]": "lv1", "[2]": "gv"}


def test_a_graph_is_found_with_the_operands_of_a_commutative_operator_swapped() -> None:
    found = matcher(DENSE, *STEPS)
    nodes = {
        "mm": {"op": "matmul", "args": ["x", "w"], "shape": ["n", "m"]},
        "y": {"op": "add", "args": ["mm", "bias"]},
        "x": {"shape": ["n", "k"]},
        "w": {"shape": ["k", "m"]},
        "bias": {"shape": ["m"], "dtype": "float32"},
    }
    match = found.match(pattern(nodes=nodes), at(found, "lv1"))
    assert isinstance(match, Match)
    assert {name: name_of(expr) for name, expr in match.nodes.items()} == {
        "y": "lv1", "mm": "lv", "x": "x", "w": "w", "bias": "b",
    }  # fmt: skip


def test_one_node_stands_for_one_value() -> None:
    nodes = {"s": {"op": "sigmoid", "args": ["x"]}, "y": {"op": "multiply", "args": ["x", "s"]}, "x": {}}
    silu = matcher(X, "lv = R.sigmoid(x)", "gv = R.multiply(lv, x)")
    assert isinstance(silu.match(pattern(nodes=nodes), at(silu, "gv")), Match)
    other = matcher(X + ', y: R.Tensor((4, 8), "float32")', "lv = R.sigmoid(x)", "gv = R.multiply(lv, y)")
    assert miss(other, pattern(nodes=nodes)).constraint == "args"


def test_operands_in_a_tuple_are_operands() -> None:
    found = matcher(X, "lv = R.exp(x)", "gv = R.concat((x, lv), axis=0)")
    assert isinstance(found.match(pattern("exp", "concat"), at(found, "gv")), Match)


@pytest.mark.parametrize(
    ("chain", "node", "constraint", "words"),
    [
        (["tanh", "add", "relu"], "[0]", "op", "'lv' must be tanh, but it is matmul"),
        ([{"op": "matmul", "dtype": "float16"}, "add", "relu"], "[0]", "dtype", "'lv' must be float16, but it is float32"),
        ([{"op": "matmul", "rank": 3}, "add", "relu"], "[0]", "rank", "must have 3 dimensions, but it has 2"),
        ([{"op": "matmul", "shape": [4, 9]}, "add", "relu"], "[0]", "shape", "must have a size 9 where it has 8"),
        ([{"op": "matmul", "shape": ["n", "n"]}, "add", "relu"], "[0]", "shape", "a size n, which is 4 here, where it has 8"),
        (["tanh", "relu"], "[0]", "op", "'lv1' must be tanh, but it is add"),
    ],
)  # fmt: skip
def test_a_near_miss_names_the_node_and_the_constraint(
    chain: list[Any], node: str, constraint: str, words: str
) -> None:
    found = miss(matcher(DENSE, *STEPS), pattern(*chain))
    assert (found.node, found.constraint) == (node, constraint)
    assert words in found.message


def test_an_inner_value_that_others_read_is_a_near_miss_unless_it_may_be_computed_twice() -> None:
    found = matcher(DENSE, "lv = R.matmul(x, w)", "lv1 = R.add(lv, b)", "lv2 = R.add(lv, x)", "gv = R.add(lv1, lv2)")
    result = miss(found, pattern("matmul", "add"), "lv1")
    assert (result.node, result.constraint, result.message) == (
        "[0]", "single_use", "'lv' is read 1 time outside of the group",
    )  # fmt: skip
    twice = pattern({"op": "matmul", "single_use": False}, "add")
    assert isinstance(found.match(twice, at(found, "lv1")), Match)


def test_a_constant_is_what_is_computed_of_constants_alone() -> None:
    found = matcher(X, "lv = R.permute_dims(R.const(1.0))", "lv1 = R.multiply(x, lv)", "gv = R.multiply(lv1, x)")
    nodes = {"y": {"op": "multiply", "args": ["a", "w"]}, "a": {"constant": False}, "w": {"constant": True}}
    assert isinstance(found.match(pattern(nodes=nodes), at(found, "lv1")), Match)
    assert miss(found, pattern(nodes=nodes), "gv").constraint == "constant"


def test_what_is_claimed_is_not_matched_again() -> None:
    found = matcher(DENSE, *STEPS)
    found.claimed[at(found, "lv")] = "other"
    result = miss(found, pattern("matmul", "add", "relu"))
    assert (result.constraint, result.message) == ("group", "'lv' belongs to the group 'other' already")


def test_a_beginning_that_nothing_goes_on_from_is_a_near_miss() -> None:
    found = matcher(DENSE, "lv = R.matmul(x, w)", "lv1 = R.add(lv, b)", "gv = R.tanh(lv1)")
    (result,) = found.below(pattern("matmul", "add", "relu"), at(found, "lv1"), 2)
    assert (result.node, result.constraint, result.nearness()) == ("[2]", "op", 2)
    assert result.message == "'lv1' must be read by nn.relu, but it is read by tanh"
    assert result.to_json("main")["matched"] == {"[0]": "lv", "[1]": "lv1"}


def test_a_pattern_with_too_many_ways_to_match_ends_all_the_same() -> None:
    names = ["x", *[f"lv{index}" for index in range(30)], "gv"]
    found = matcher(X, *[f"{new} = R.add({old}, {old})" for old, new in itertools.pairwise(names)])
    assert isinstance(found.match(pattern("tanh", *["add"] * 31), at(found, "gv")), Miss)
