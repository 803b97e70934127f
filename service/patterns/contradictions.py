"""Contradictions between the constraints of a pattern's nodes: sizes and dtypes that no operator could give."""

from __future__ import annotations

from service.patterns import Node, Pattern
from service.patterns.operators import BROADCASTING, POINTWISE


def contradiction(node: Node, pattern: Pattern) -> tuple[str, str] | None:
    """Why `node` of `pattern` can never match: the path below the nodes, and a sentence. None where it could."""
    operands = [pattern.nodes[name] for name in node.operands if name is not None]
    names = set(node.operators)
    if names <= POINTWISE | BROADCASTING:
        for other in operands:
            if node.dtype and other.dtype and node.dtype != other.dtype:
                return _said(node, "dtype", f"is {node.dtype}, but {_named(other)} is {other.dtype}")
    if names <= POINTWISE and operands:
        return _pointwise(node, operands[0])
    if names <= BROADCASTING:
        return _broadcasting(node, operands)
    if names == {"matmul"} and len(operands) == 2 and len(node.operands) == 2:
        return _matmul(node, *operands)
    return None


def _pointwise(node: Node, operand: Node) -> tuple[str, str] | None:
    if node.rank is not None and operand.rank is not None and node.rank != operand.rank:
        field = "rank" if node.shape is None else "shape"
        return _said(node, field, f"has {node.rank} dimensions, but {_named(operand)} has {operand.rank}")
    for mine, theirs in zip(node.shape or (), operand.shape or (), strict=False):
        if isinstance(mine, int) and isinstance(theirs, int) and mine != theirs:
            return _said(node, "shape", f"has a size {mine} where {_named(operand)} has {theirs}")
    return None


def _broadcasting(node: Node, operands: list[Node]) -> tuple[str, str] | None:
    for other in operands:
        if node.rank is not None and other.rank is not None and other.rank > node.rank:
            field = "rank" if node.shape is None else "shape"
            return _said(node, field, f"has {node.rank} dimensions, fewer than the {other.rank} of {_named(other)}")
        for mine, theirs in zip(reversed(node.shape or ()), reversed(other.shape or ()), strict=False):
            if isinstance(mine, int) and isinstance(theirs, int) and theirs not in (mine, 1):
                return _said(node, "shape", f"has a size {mine} where {_named(other)} has {theirs}")
    if len(operands) == 2:
        for left, right in zip(reversed(operands[0].shape or ()), reversed(operands[1].shape or ()), strict=False):
            if isinstance(left, int) and isinstance(right, int) and left != right and 1 not in (left, right):
                return _said(operands[1], "shape", f"has a size {right} that does not broadcast with {left}")
    return None


def _matmul(node: Node, left: Node, right: Node) -> tuple[str, str] | None:
    for operand in (left, right):
        if operand.rank == 0:
            return _said(operand, "shape" if operand.shape is not None else "rank", "is of a number, not of a matrix")
    if not left.shape or not right.shape:
        return None
    inner, other = left.shape[-1], right.shape[max(0, len(right.shape) - 2)]
    if isinstance(inner, int) and isinstance(other, int) and inner != other:
        return _said(
            right, "shape", f"has {other} rows, but {_named(left)}, which {_named(node)} reads, {inner} columns"
        )
    return None


def _said(node: Node, field: str, reason: str) -> tuple[str, str]:
    return f"{node.name}.{field}", f"{reason}; it can never match"


def _named(node: Node) -> str:
    return f"node {node.name!r}"
