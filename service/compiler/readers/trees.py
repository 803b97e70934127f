"""The nesting of inputs and outputs (PyTorch's treespec), whose loader would import any module that it names."""

from __future__ import annotations

import json
from typing import Any

from service.compiler.readers.bounded_json import parse_json
from service.compiler.readers.names import is_plain_name
from service.compiler.readers.refusal import damaged, shown, unsafe

MAX_DEPTH = 64
MAX_NODES = 100_000

_DICTS = ("builtins.dict", "collections.OrderedDict", "torch.fx.immutable_collections.immutable_dict")
_LISTS = ("builtins.list", "collections.deque", "torch.fx.immutable_collections.immutable_list")


def check_tree(text: str, where: str) -> str:
    """The treespec with built-in containers only. Raises DamagedModel, UnsafeModel.

    Any other container (a named tuple, a dataclass, a defaultdict) becomes a tuple: its leaves keep their order, and
    relaxd deals with leaves only.
    """
    try:
        protocol, tree = parse_json(text.encode(), where)
    except (TypeError, ValueError) as error:
        raise damaged("The nesting of inputs or outputs is no treespec", where) from error
    if protocol != 1:
        raise damaged(f"The nesting of inputs or outputs has the unknown protocol {shown(protocol)}", where)
    budget = [MAX_NODES]
    return json.dumps([1, _clean(tree, where, 0, budget)])


def check_call_tree(text: str, where: str) -> str:
    """As `check_tree`, of a call: a tuple of positional and a dict of named arguments, whose names become code."""
    clean = check_tree(text, where)
    tree = json.loads(clean)[1]
    children = tree["children_spec"]
    types = [child["type"] for child in children]
    if tree["type"] != "builtins.tuple" or types not in ([], ["builtins.tuple", "builtins.dict"]):
        raise damaged("The nesting of the inputs is not that of a call", where)
    for name in json.loads(children[1]["context"]) if children else ():
        if not is_plain_name(name):
            raise unsafe(f"An input has the name {shown(name)}, which would become code", where)
    return clean


def _clean(node: Any, where: str, depth: int, budget: list[int]) -> dict[str, Any]:
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        raise unsafe("The nesting of inputs or outputs is too deep or too large", where)
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        raise damaged("The nesting of inputs or outputs is no treespec", where)
    kind, context = node.get("type"), node.get("context")
    children = [_clean(child, where, depth + 1, budget) for child in node["children_spec"]]
    if kind is None:
        if children:
            raise damaged("A leaf of the inputs or outputs has parts", where)
        return {"type": None, "context": None, "children_spec": []}
    if not isinstance(kind, str):
        raise damaged("A container of inputs or outputs has no type", where)
    if kind in _DICTS:
        keys = _keys(context, len(children), where)
        name = "collections.OrderedDict" if kind == "collections.OrderedDict" else "builtins.dict"
        return {"type": name, "context": json.dumps(keys), "children_spec": children}
    name = "builtins.list" if kind in _LISTS else "builtins.tuple"
    return {"type": name, "context": "null", "children_spec": children}


def _keys(context: Any, count: int, where: str) -> list[str | int]:
    keys = parse_json(context.encode(), where) if isinstance(context, str) else None
    if (
        not isinstance(keys, list)
        or len(keys) != count
        or any(type(key) not in (str, int) for key in keys)
        or any(isinstance(key, str) and (len(key) > 255 or not key.isprintable()) for key in keys)
        or len(set(keys)) != count
    ):
        raise damaged("A dict of inputs or outputs has no plain keys", where)
    return keys
