"""What a TorchScript module does that no exported program can: keep state, branch on data or on a plain number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from service.compiler.readers.script_sources import ScriptSources
from service.errors import ImportFailed, JsonObject

_LINE = re.compile(r'File "([^"]*)", line (\d+)')
# With a default these choose a variant of the module, and the default's is the one that is compiled.
_NUMBERS = ("int", "float", "number", "complex")
_FLAGS = ("bool", "str", "Device")
# What reads a tensor's values; anything else that makes a number of a tensor tells of its shape or dtype.
_READS = frozenset(
    f"aten::{name}"
    for name in ("Bool", "Int", "Float", "item", "IntImplicit", "FloatImplicit", "ScalarImplicit", "is_nonzero",
                 "equal", "allclose", "tolist", "_local_scalar_dense")
) | {"prim::tolist"}  # fmt: skip
_PASSES_ON = frozenset({"prim::unchecked_cast", "prim::TupleUnpack", "prim::TupleIndex", "prim::ListUnpack"})
_VIEWS = frozenset(
    f"aten::{name}"
    for name in ("select", "slice", "view", "reshape", "t", "transpose", "expand", "unsqueeze", "squeeze", "detach",
                 "alias", "narrow", "permute", "flatten", "view_as", "diagonal")
)  # fmt: skip
MAX_WALK = 100_000


@dataclass(frozen=True)
class Construct:
    """One thing that cannot be compiled: `kind` is ``state`` or ``branch``, `what` names it for a sentence."""

    kind: str
    what: str
    source_line: str

    def to_json(self) -> JsonObject:
        return {"kind": self.kind, "what": self.what, "source_line": self.source_line}


def find_constructs(graph: Any, sources: ScriptSources, defaults: frozenset[str]) -> list[Construct]:
    """All of them in a frozen, inlined graph, the state first, each once.

    `defaults` are the inputs that keep their default, such as a mask that is None.
    """
    owners = _owners(graph)
    found: dict[Construct, None] = {}
    for node in _nodes(graph):
        place = place_of(node, sources)
        kind = node.kind()
        if kind == "prim::SetAttr":
            name = node.s("name")
            if next(iter(node.inputs())).node().kind() != "prim::CreateObject":
                line = sources.assignment(name) or place
                found[Construct("state", f"it sets its attribute `{name}`", line)] = None
        elif kind.endswith("_") and not kind.endswith("__") and kind.startswith("aten::"):
            attribute = _attribute(next(iter(node.inputs()), None))
            if attribute is not None:
                found[Construct("state", f"it changes its buffer `{attribute}` by {kind[6:]}", place)] = None
        elif kind in ("prim::If", "prim::Loop"):
            cause = _cause(list(node.inputs())[: 2 if kind == "prim::Loop" else 1], graph, owners, defaults)
            if cause is not None:
                word = "branches" if kind == "prim::If" else "loops"
                found[Construct("branch", f"it {word} on {cause}", place)] = None
    return sorted(found, key=lambda construct: construct.kind != "state")


def refuse_constructs(constructs: list[Construct]) -> None:
    """Raises ImportFailed naming all of them, when there are any."""
    if not constructs:
        return
    shown = "; ".join(f"{construct.what} ({construct.source_line})" for construct in constructs[:6])
    more = f"; and {len(constructs) - 6} more" if len(constructs) > 6 else ""
    kinds = {construct.kind for construct in constructs}
    remedies = []
    if "state" in kinds:
        remedies.append("take the state as an input and return it as an output")
    if "branch" in kinds:
        remedies.append("export the path that you need, with its numbers fixed, or use torch.where or torch.cond")
    raise ImportFailed(
        f"The module's forward cannot become one compiled program: {shown}{more}. Wrap it in a module of your own: "
        f"{', and '.join(remedies)}; then make a .pt2 with torch.export.",
        step=0,
        constructs=[construct.to_json() for construct in constructs],
    )


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def place_of(node: Any, sources: ScriptSources) -> str:
    """The source line of a node."""
    message = "" if node is None else node.sourceRange()
    lines = [match for match in _LINE.finditer(message) if match[1].startswith("code/")]
    return sources.locate(lines[-1][1], int(lines[-1][2])) if lines else "its code"


def _attribute(value: Any) -> str | None:
    """The attribute of the module that a tensor is, or is a view of, if it is one."""
    node = value.node() if value is not None else None
    while node is not None and node.kind() in _VIEWS:
        node = next(iter(node.inputs())).node()
    return str(node.s("name")) if node is not None and node.kind() == "prim::GetAttr" else None


def _owners(graph: Any) -> dict[str, list[Any]]:
    """For each value that a loop's body starts with: what it comes from."""
    owners: dict[str, list[Any]] = {}
    for node in _nodes(graph):
        if node.kind() == "prim::Loop":
            body = next(iter(node.blocks()))
            given, results = list(node.inputs()), list(body.outputs())
            for index, parameter in enumerate(body.inputs()):
                # The first is the number of the step; the condition stands before what is carried.
                sources = [given[index + 1], results[index]] if index else [given[0]]
                owners[parameter.debugName()] = sources
    return owners


def _cause(values: list[Any], graph: Any, owners: dict[str, list[Any]], defaults: frozenset[str]) -> str | None:
    """What a condition depends on: an input's data or a plain number; None when only on shapes and constants."""
    inputs = {value.debugName(): value for value in graph.inputs()}
    waiting = list(values)
    seen: set[str] = set()
    number: str | None = None
    while waiting and len(seen) < MAX_WALK:
        value = waiting.pop()
        name = value.debugName()
        if name in seen:
            continue
        seen.add(name)
        if name in inputs:
            kind = str(value.type())
            if (kind in _FLAGS + _NUMBERS or kind.startswith("Optional")) and name.partition(".")[0] in defaults:
                continue
            if kind in _FLAGS + _NUMBERS:
                number = f"the plain {kind} `{name.partition('.')[0]}`"
            if "Tensor" in kind:
                return f"the values of the input `{name.partition('.')[0]}`"
            continue
        if name in owners:
            waiting.extend(owners[name])
            continue
        waiting.extend(_followed(value))
    return number


def _followed(value: Any) -> list[Any]:
    """What a value's own value depends on."""
    node = value.node()
    kind = node.kind()
    if kind in ("prim::If", "prim::Loop"):
        index = [output.debugName() for output in node.outputs()].index(value.debugName())
        # A loop's body ends with its condition, before what it carries.
        bodies = [list(block.outputs()) for block in node.blocks()]
        carried = [body[index + (kind == "prim::Loop")] for body in bodies]
        return [*carried, *[part for part in node.inputs() if "Tensor" not in str(part.type())]]
    reads = "Tensor" in str(value.type()) or kind in _READS or kind in _PASSES_ON
    return [part for part in node.inputs() if reads or "Tensor" not in str(part.type())]
