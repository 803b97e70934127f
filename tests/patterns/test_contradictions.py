"""Constraints that contradict each other are found before anything is compiled."""

from __future__ import annotations

from typing import Any

import pytest

from service.patterns import Node, Pattern
from service.patterns.contradictions import contradiction


def found(operator: str, *operands: dict[str, Any], **result: Any):
    names = [f"x{index}" for index in range(len(operands))]
    node = Node("y", (operator,), tuple(names), **result)
    nodes = {name: Node(name, **each) for name, each in zip(names, operands, strict=True)}
    return contradiction(node, Pattern("p", {"y": node, **nodes}, "y"))


def shaped(*sizes: int | str) -> dict[str, Any]:
    return {"shape": sizes, "rank": len(sizes)}


@pytest.mark.parametrize(
    ("operator", "operands", "result", "path"),
    [
        ("nn.relu", [{"dtype": "int8"}], {"dtype": "float32"}, "y.dtype"),
        ("add", [{}, {"dtype": "int8"}], {"dtype": "float32"}, "y.dtype"),
        ("nn.relu", [{"rank": 2}], {"rank": 3}, "y.rank"),
        ("nn.relu", [shaped(4, "n")], shaped(5, "n"), "y.shape"),
        ("add", [{"rank": 3}, {}], {"rank": 2}, "y.rank"),
        ("add", [shaped(4), {}], shaped(2, 5), "y.shape"),
        ("add", [shaped(2, 4), shaped(5)], {}, "x1.shape"),
        ("matmul", [shaped(2, 4), shaped(5, 3)], {}, "x1.shape"),
        ("matmul", [shaped(2, 4), shaped()], {}, "x1.shape"),
    ],
)
def test_what_no_operator_can_give_is_a_contradiction(operator, operands, result, path):
    where, reason = found(operator, *operands, **result)
    assert where == path
    assert reason.endswith("it can never match")


@pytest.mark.parametrize(
    ("operator", "operands", "result"),
    [
        ("nn.relu", [shaped("n", 4)], shaped(3, "*")),
        ("add", [shaped(2, 1), shaped(5)], shaped(2, 5)),
        ("equal", [{"dtype": "int8"}, {}], {"dtype": "bool"}),
        ("matmul", [shaped("b", 2, 4), shaped(4, 3)], {}),
        ("matmul", [shaped(4), shaped(4)], {}),
        ("nn.conv2d", [shaped(1, 2, 3, 4), shaped(5, 6, 7, 8)], {"rank": 4}),
    ],
)
def test_what_some_operator_could_give_is_none(operator, operands, result):
    assert found(operator, *operands, **result) is None
