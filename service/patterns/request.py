"""From the options of fuse_pattern to patterns, checked before any worker sees them.

A pattern that can never match (an operator that Relax does not have, contradictory constraints, a cycle) is refused
with the path of the field that makes it so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from service.errors import JsonObject, nearest
from service.json_schema import Flaw, join_path
from service.patterns import Node, Pattern
from service.patterns.contradictions import contradiction
from service.patterns.operators import OPERANDS, TUPLES, full_name

ANYTHING = "_"
MAX_PATTERNS = 50
MAX_NODES = 32

_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_WORD: JsonObject = {"type": "string", "minLength": 1, "maxLength": 64}
_NODE_NAME: JsonObject = {**_WORD, "pattern": _NAME, "title": "a name of letters, digits and _"}
_OPERATOR: JsonObject = {"anyOf": [_WORD, {"type": "array", "minItems": 1, "maxItems": MAX_NODES, "items": _WORD}]}
_SIZE: JsonObject = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^(\*|[A-Za-z_][A-Za-z0-9_]*)$", "title": "* or a name", "maxLength": 64},
    ]
}
_CONSTRAINTS: JsonObject = {
    "shape": {
        "type": "array",
        "maxItems": 16,
        "items": _SIZE,
        "description": "Sizes: a number, `*` for any, or a name; a name stands for one size throughout a match.",
    },
    "rank": {"type": "integer", "minimum": 0, "maximum": 16, "description": "How many dimensions."},
    "dtype": {
        "enum": ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"],
        "description": "The dtype of its value.",
    },
    "constant": {
        "type": "boolean",
        "description": "Whether it is a weight: a constant, or computed of constants alone. For operands only.",
    },
    "single_use": {
        "type": "boolean",
        "description": "Whether nothing outside of the group reads it. True for inner nodes unless said otherwise; "
        "with false, an inner node that others read too is computed again inside the group.",
    },
}
_ENTRY: JsonObject = {
    "type": "object",
    "additionalProperties": False,
    "required": ["op"],
    "properties": {"op": {**_OPERATOR, "description": "An operator of Relax, or several of which one."}} | _CONSTRAINTS,
}
_NODE: JsonObject = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "op": {**_OPERATOR, "description": "An operator of Relax, or several of which one. Without it: an operand."},
        "args": {
            "type": "array",
            "maxItems": MAX_NODES,
            "items": _WORD,
            "description": "Its operands by the names of nodes, `_` for any. Commutative operators take them swapped.",
        },
    }
    | _CONSTRAINTS,
}
SHORT_SCHEMA: JsonObject = {"type": "array", "maxItems": MAX_NODES, "items": _WORD}
SCHEMA: JsonObject = {
    "type": "array",
    "maxItems": MAX_PATTERNS,
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {**_NODE_NAME, "description": "The name of the group, and of its kernel."},
            "priority": {
                "type": "integer",
                "minimum": -1000,
                "maximum": 1000,
                "description": "Higher ones match first; equal ones in the order of the list. Default 0.",
            },
            "chain": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_NODES,
                "items": {"anyOf": [_WORD, _ENTRY]},
                "description": "Operators of which each reads the one before, as any of its operands.",
            },
            "nodes": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": MAX_NODES,
                "propertyNames": {"pattern": _NAME},
                "additionalProperties": _NODE,
                "description": "Nodes by name: operators with their operands, and operands with constraints.",
            },
            "result": {**_WORD, "description": "The node whose value the group gives. Default: the one nothing reads."},
        },
    },
}


def parse(options: Mapping[str, Any]) -> tuple[Pattern, ...]:
    """The patterns of the options `pattern` and `patterns` of fuse_pattern, in the order in which they match.

    The options have the form of the schemas above. Raises Flaw where a pattern can never match.
    """
    short, given = options["pattern"], options["patterns"]
    if bool(short) == bool(given):
        raise Flaw("patterns", "must be given, or the short form `pattern`, and not both")
    if short:
        name = "_".join(re.sub(r"\W", "_", word.removeprefix("relax.").removeprefix("nn.")) for word in short)
        return (_chain({"name": name}, short, "pattern"),)
    patterns: dict[str, Pattern] = {}
    for index, each in enumerate(given):
        where = f"patterns[{index}]"
        if each["name"] in patterns:
            raise Flaw(f"{where}.name", f"is {each['name']!r}, as of an earlier pattern; each needs its own")
        patterns[each["name"]] = _pattern(each, where)
    # A stable sort: equal priorities keep the order of the list.
    return tuple(sorted(patterns.values(), key=lambda pattern: -pattern.priority))


def check(options: Mapping[str, Any]) -> None:
    """Raises Flaw where `parse` would."""
    parse(options)


def _pattern(given: JsonObject, where: str) -> Pattern:
    if ("chain" in given) == ("nodes" in given):
        raise Flaw(where, "must have either `chain` or `nodes`")
    if "chain" in given:
        if "result" in given:
            raise Flaw(f"{where}.result", "is for `nodes`; the result of a chain is its last entry")
        return _chain(given, given["chain"], f"{where}.chain")
    nodes = {name: _node(name, each, f"{where}.nodes.{name}") for name, each in given["nodes"].items()}
    pattern = Pattern(given["name"], nodes, _result(given, nodes, where), given.get("priority", 0))
    _check_graph(pattern, f"{where}.nodes")
    return pattern


def _chain(given: JsonObject, entries: list[Any], where: str) -> Pattern:
    nodes: dict[str, Node] = {}
    before: str | None = None
    for index, entry in enumerate(entries):
        name = f"[{index}]"
        path = f"{where}{name}"
        node = entry if isinstance(entry, dict) else {"op": entry}
        operator_path = f"{path}.op" if isinstance(entry, dict) else path
        nodes[name] = _node(name, node, path, () if before is None else (before,), operator_path)
        before = name
    pattern = Pattern(given["name"], nodes, str(before), given.get("priority", 0), is_chain=True)
    _check_constraints(pattern, where)
    return pattern


def _node(
    name: str, given: JsonObject, where: str, operands: tuple[str, ...] = (), operator_path: str | None = None
) -> Node:
    operators: tuple[str, ...] = ()
    if "op" in given:
        several = isinstance(given["op"], list)
        path = operator_path or f"{where}.op"
        listed = given["op"] if several else [given["op"]]
        operators = tuple(_operator(word, f"{path}[{index}]" if several else path) for index, word in enumerate(listed))
    args: list[str] = given.get("args", list(operands))
    _check_operands(operators, args, where, is_chain=bool(operands))
    if operators and given.get("constant"):
        raise Flaw(f"{where}.constant", "is for operands: a node with an operator is computed, and never a constant")
    shape, rank = given.get("shape"), given.get("rank")
    if shape is not None and rank is not None and len(shape) != rank:
        raise Flaw(f"{where}.rank", f"is {rank}, but the shape has {len(shape)} dimensions")
    return Node(
        name,
        operators,
        tuple(None if arg == ANYTHING else arg for arg in args),
        None if shape is None else tuple(shape),
        rank if shape is None else len(shape),
        given.get("dtype"),
        given.get("constant"),
        given.get("single_use"),
    )


def _operator(word: str, where: str) -> str:
    name = full_name(word)
    if name is None:
        near = nearest(word.removeprefix("relax."), OPERANDS)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise Flaw(where, f"is {word!r}, which is no operator of Relax{hint}", near)
    if name in TUPLES:
        raise Flaw(where, f"is {word!r}, which gives several results; a pattern is of operators that give one")
    return name


def _check_operands(operators: tuple[str, ...], args: list[str], where: str, *, is_chain: bool) -> None:
    if not operators and args:
        raise Flaw(f"{where}.args", "is for nodes with an `op`")
    most = [OPERANDS[name] for name in operators]
    taken = max((len(args) if limit is None else limit for limit in most), default=0)
    if len(args) > taken:
        names = " and ".join(operators)
        if is_chain:
            raise Flaw(where, f"is {names}, which reads no tensor, and so not the entry before it")
        raise Flaw(f"{where}.args", f"has {len(args)} entries, but {names} has {taken} operands")


def _result(given: JsonObject, nodes: Mapping[str, Node], where: str) -> str:
    read = {operand for node in nodes.values() for operand in node.operands}
    if "result" in given:
        name = str(given["result"])
        if name not in nodes or not nodes[name].operators:
            raise Flaw(f"{where}.result", f"is {name!r}, which is no node with an operator", nearest(name, nodes))
        if name in read:
            raise Flaw(f"{where}.result", f"is {name!r}, which another node of the pattern reads")
        return name
    unread = [node.name for node in nodes.values() if node.operators and node.name not in read]
    if not any(node.operators for node in nodes.values()):
        raise Flaw(f"{where}.nodes", "has no node with an operator, so there is nothing to group")
    if not unread:
        raise Flaw(f"{where}.nodes", "has a cycle: every node is an operand of another")
    if len(unread) > 1:
        raise Flaw(f"{where}.nodes", f"has several results ({', '.join(unread)}); a group gives one")
    return unread[0]


def _check_graph(pattern: Pattern, where: str) -> None:
    for node in pattern.nodes.values():
        for index, operand in enumerate(node.operands):
            if operand is not None and operand not in pattern.nodes:
                near = nearest(operand, pattern.nodes)
                path = f"{where}.{node.name}.args[{index}]"
                raise Flaw(path, f"is {operand!r}, which is no node of the pattern; `_` stands for any operand", near)
    _check_cycles(pattern, where)
    reached = pattern.rooted_at(pattern.result).nodes
    for name in pattern.nodes:
        if name not in reached:
            raise Flaw(f"{where}.{name}", f"is not read on the way to the result {pattern.result!r}")
    _check_constraints(pattern, where)


def _check_cycles(pattern: Pattern, where: str) -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        for index, operand in enumerate(pattern.nodes[name].operands):
            if operand in (*path, name):
                raise Flaw(f"{where}.{name}.args[{index}]", f"makes a cycle: {operand!r} is computed from {name!r}")
            if operand is not None and operand not in done:
                visit(operand, (*path, name))
        done.add(name)

    for name in pattern.nodes:
        if name not in done:
            visit(name, ())


def _check_constraints(pattern: Pattern, where: str) -> None:
    result = pattern.nodes[pattern.result]
    for node in pattern.operators():
        found = None if pattern.is_chain and len(pattern.nodes) == 1 else contradiction(node, pattern)
        if found is not None:
            raise Flaw(join_path(where, found[0]), found[1])
    if result.single_use:
        path = join_path(where, result.name, "single_use")
        raise Flaw(path, "is for inner nodes and operands: the result of a group is what others read")
