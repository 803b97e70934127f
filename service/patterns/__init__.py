"""Fusion patterns: chains and small graphs of operators of Relax, with constraints on their nodes. Needs no tvm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """One node. Without `operators` it stands for an operand of the group; None in `operands` stands for anything."""

    name: str
    operators: tuple[str, ...] = ()
    operands: tuple[str | None, ...] = ()
    shape: tuple[int | str, ...] | None = None
    rank: int | None = None
    dtype: str | None = None
    constant: bool | None = None
    single_use: bool | None = None


@dataclass(frozen=True)
class Pattern:
    """A connected graph of nodes with one result. In a chain an operand may stand at any position."""

    name: str
    nodes: Mapping[str, Node]
    result: str
    priority: int = 0
    is_chain: bool = False

    def operators(self) -> list[Node]:
        """The nodes that are computed inside the group."""
        return [node for node in self.nodes.values() if node.operators]

    def rooted_at(self, name: str) -> Pattern:
        """The part of this pattern whose result is `name`."""
        reached: dict[str, Node] = {}
        pending = [name]
        while pending:
            node = self.nodes[pending.pop()]
            reached[node.name] = node
            pending += [operand for operand in node.operands if operand is not None and operand not in reached]
        return Pattern(self.name, reached, name, self.priority, self.is_chain)
