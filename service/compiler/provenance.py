"""Which nodes of the user's model each binding and each function comes from, kept from step to step.

TVM's passes keep no such record, so it is made anew after each of them, from the graphs of the functions before and
after. A variable goes on as the one of the same name, where the name is one that the importer gave; else as the one
that is computed in the same way from the same; a new one has the origins of what stood in its place: of the variables
that are gone and that lie between those that its value is computed of and those that are computed of it. What a new
function holds is looked for where the function is called. A function has the origins of all that is in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from service.compiler.block_origins import BlockOrigins
from service.errors import JsonObject

Origins = frozenset[int]
NONE: Origins = frozenset()

# Names that passes give to what has none: the same name may mean another thing after each pass.
_PASSING = re.compile(r"(?:lv|gv|lv_|gv_)\d*(?:_\d+)*")


# What the graphs have for this module alone.
_PRIVATE = ("operands", "arguments", "inside")


@dataclass(frozen=True)
class Origin:
    """A node of the model: its name, its operator, the path of its module, the line of the user's source."""

    node: str
    operator: str
    module: str | None
    source: str | None

    def to_json(self) -> JsonObject:
        return {"node": self.node, "operator": self.operator, "module": self.module, "source": self.source}


class Provenance:
    """The origins of all bindings and functions after the latest step; origins are positions in a list of nodes."""

    def __init__(self, origin_of: Mapping[str, int]) -> None:
        """`origin_of` has the position of the node of each variable that the importer made."""
        self._origin_of = origin_of
        self._old: dict[str, _Graph] | None = None
        self._blocks = BlockOrigins()

    def state(self) -> Any:
        """The functions of the latest step, which do not change later."""
        return self._old, self._blocks.state()

    def restore(self, state: Any) -> None:
        """Goes on from the step of that state."""
        self._old, blocks = state
        self._blocks.restore(blocks)

    def follow(self, entries: list[JsonObject]) -> list[JsonObject]:
        """The functions of the next step, each and each of its bindings with its ``origins``, sorted."""
        graphs = {entry["name"]: _Graph(entry["bindings"]) for entry in entries if entry["bindings"]}
        if self._old is None:
            for graph in graphs.values():
                graph.begin(self._origin_of)
        else:
            new = {name: graph for name, graph in graphs.items() if name not in self._old}
            for name in graphs.keys() & self._old.keys():
                _Succession(self._old[name], graphs[name], new).carry()
        for graph in graphs.values():
            graph.compute_keys()
        functions = _origins_of_functions(graphs)
        self._blocks.follow(entries, {name: graph.calls() for name, graph in (self._old or {}).items()})
        self._old = graphs
        return [
            {
                **_with_origins(entry, graphs.get(entry["name"]), functions[entry["name"]]),
                "blocks": self._blocks.of(entry),
            }
            for entry in entries
        ]


class _Graph:
    """One Relax function as a graph of names. A key is the same for what is computed in the same way."""

    def __init__(self, bindings: list[JsonObject]) -> None:
        self.nodes: dict[str, JsonObject] = {node["name"]: node for node in bindings}
        self.users: dict[str, list[str]] = defaultdict(list)
        for node in bindings:
            for source in node["inputs"]:
                self.users[source].append(node["name"])
        self.parameters = [node["name"] for node in bindings if node["op"] == "parameter"]
        self.origins: dict[str, Origins] = {}
        self.keys: dict[str, int] = {}
        self.by_key: dict[int, set[str]] = defaultdict(set)

    def inputs(self, name: str) -> Iterable[str]:
        return self.nodes[name]["inputs"] if name in self.nodes else ()

    def readers(self, name: str) -> Iterable[str]:
        return self.users.get(name, ())

    def key(self, name: str, keys: Mapping[str, int]) -> int:
        """The key of a node, with those of its operands in `keys`."""
        node = self.nodes[name]
        if node["op"] == "parameter":
            return hash(("parameter", name))
        operands = [each if isinstance(each, int) else keys.get(each, 0) for each in node["operands"]]
        if node["op"] in ("Var", "DataflowVar"):
            return operands[0]
        called = str(node.get("callee") or node["op"])
        return hash((called, node.get("index"), *operands))

    def begin(self, origin_of: Mapping[str, int]) -> None:
        """The origins of the imported module: those of the nodes, and of what a check of a node's operands needs."""
        for name, node in self.nodes.items():
            if name in origin_of:
                self.origins[name] = frozenset([origin_of[name]])
            elif node["op"] not in ("parameter", "return"):
                self.origins[name] = NONE.union(*(self.origins.get(each, NONE) for each in node["inputs"]))

    def compute_keys(self) -> None:
        """Of all nodes, in their order, by what this graph alone shows."""
        self.keys.clear()
        self.by_key.clear()
        for name in self.nodes:
            self.keys[name] = self.key(name, self.keys)
            self.by_key[self.keys[name]].add(name)

    def calls(self) -> list[tuple[str, Origins]]:
        """The functions that are called, in order, with the origins of the calls."""
        called = ((node.get("callee"), self.origins.get(name, NONE)) for name, node in self.nodes.items())
        return [(callee, origins) for callee, origins in called if callee is not None]

    @property
    def result(self) -> str | None:
        """The variable that the function returns; None where it is a tuple."""
        returned = self.nodes["return"]["inputs"]
        return returned[0] if len(returned) == 1 else None


class _Succession:
    """One function before and after a pass. `new` are the functions that the pass has made."""

    def __init__(self, before: _Graph, after: _Graph, new: Mapping[str, _Graph]) -> None:
        self._before = before
        self._after = after
        self._new = new
        # What a variable goes on as, in names of before; and all of these.
        self._anchors: dict[str, set[str]] = {}
        self._taken: set[str] = set()
        self._rewritten = _rewritten_calls(before, after)

    def carry(self) -> None:
        """Gives all of `after`, and what the new functions hold, their origins."""
        before, after = self._before, self._after
        for name, node in after.nodes.items():
            group = self._new.get(node.get("callee", ""))
            inside = None if group is None else self._enter(group, node)
            if name in before.nodes and not _PASSING.fullmatch(name) and group is None:
                after.keys[name] = before.keys[name]
                self._anchor(name, {name})
            else:
                after.keys[name] = inside if inside is not None else after.key(name, after.keys)
                if after.keys[name] in before.by_key and node["op"] != "return":
                    self._anchor(name, before.by_key[after.keys[name]])
                elif name in self._rewritten:
                    old = self._rewritten[name]
                    after.keys[name] = before.keys[old]
                    self._anchor(name, {old})
        for name, node in after.nodes.items():
            if node["op"] not in ("parameter", "return"):
                self._give(name, node)

    def _anchor(self, name: str, old: set[str]) -> None:
        self._anchors[name] = old
        self._taken |= old

    def _enter(self, group: _Graph, call: JsonObject) -> int | None:
        """What a new function computes at one of its calls: the origins by key; the key of its result."""
        arguments = [each if isinstance(each, int) else self._after.keys.get(each, 0) for each in call["arguments"]]
        keys = dict(zip(group.parameters, arguments, strict=False))
        inside: set[int] = call.setdefault("inside", set())
        for name, node in group.nodes.items():
            if node["op"] in ("parameter", "return"):
                continue
            keys[name] = group.key(name, keys)
            found = self._before.by_key.get(keys[name], set())
            self._taken |= found
            origins = NONE.union(*(self._before.origins.get(each, NONE) for each in found))
            group.origins[name] = group.origins.get(name, NONE) | origins
            inside |= origins
        return keys.get(group.result) if group.result is not None else None

    def _give(self, name: str, node: JsonObject) -> None:
        before, after = self._before, self._after
        inside: set[int] = node.pop("inside", set())
        if inside:
            after.origins[name] = frozenset(inside)
        elif name in self._anchors:
            anchors = self._anchors[name]
            if name in self._rewritten and before.nodes[self._rewritten[name]].get("callee") != node["callee"]:
                # A kernel of another name may do what its neighbours did that are gone.
                anchors = anchors | self._beside(name, anchors)
            after.origins[name] = NONE.union(*(before.origins.get(each, NONE) for each in anchors))
        if not after.origins.get(name):
            after.origins[name] = self._of_place(name)
        group = self._new.get(node.get("callee", ""))
        if group is not None:
            for each, held in group.nodes.items():
                if held["op"] not in ("parameter", "return") and not group.origins.get(each):
                    group.origins[each] = after.origins[name]

    def _of_place(self, name: str) -> Origins:
        """The origins of what stood before where `name` stands now."""
        before = self._before
        above, below = self._around(name)
        gone = set(before.nodes) - self._taken
        downwards = _walk(above, before.readers, self._taken)[0] if above else gone
        upwards = _walk(below or {"return"}, before.inputs, self._taken)[0]
        origins = NONE.union(*(before.origins.get(each, NONE) for each in downwards & upwards))
        # Nothing is gone in between: it was made of what it goes to, or of what it comes from.
        return origins or NONE.union(*(before.origins.get(each, NONE) for each in (below - {"return"}) or above))

    def _beside(self, name: str, olds: set[str]) -> set[str]:
        """What is gone between `olds`, which `name` goes on as, and what stood before and after them."""
        before = self._before
        above, below = self._around(name)
        found: set[str] = set()
        for upper, lower in ((olds, below or {"return"}), (above, olds)):
            found |= _walk(upper, before.readers, self._taken)[0] & _walk(lower, before.inputs, self._taken)[0]
        return found

    def _around(self, name: str) -> tuple[set[str], set[str]]:
        """What stood where `name` comes from, and what stood where it goes to."""
        above = _walk([name], self._after.inputs, self._anchors)[1]
        below = _walk([name], self._after.readers, self._anchors)[1]
        return self._anchored(above), self._anchored(below)

    def _anchored(self, names: set[str]) -> set[str]:
        return {old for name in names for old in self._anchors[name]}


def _rewritten_calls(before: _Graph, after: _Graph) -> dict[str, str]:
    """Calls of kernels by the calls that they go on as: of the same kernel, or of one whose name they add to.

    A pass that rewrites a kernel names it after the old one (``matmul_last``), which is gone then. Where a kernel is
    called as often as before, its calls have kept their order.
    """
    old, new = _by_callee(before), _by_callee(after)
    found: dict[str, str] = {}
    for callee, names in new.items():
        earlier = [each for each in old if each not in new and callee.startswith(f"{each}_")]
        origin = callee if callee in old else max(earlier, key=len, default="")
        if len(old.get(origin, ())) == len(names):
            found.update(zip(names, old[origin], strict=True))
    return found


def _by_callee(graph: _Graph) -> dict[str, list[str]]:
    """The calls of each function, in order."""
    calls: dict[str, list[str]] = defaultdict(list)
    for name, node in graph.nodes.items():
        if "callee" in node:
            calls[node["callee"]].append(name)
    return calls


def _walk(
    start: Iterable[str], step: Callable[[str], Iterable[str]], ends_at: Container[str]
) -> tuple[set[str], set[str]]:
    """What is reached from `start` on the way, and where that ends."""
    passed: set[str] = set()
    ends: set[str] = set()
    pending = [each for name in start for each in step(name)]
    while pending:
        name = pending.pop()
        if name in ends_at:
            ends.add(name)
        elif name not in passed:
            passed.add(name)
            pending += step(name)
    return passed, ends


def _origins_of_functions(graphs: dict[str, _Graph]) -> dict[str, Origins]:
    """Of each function: all that is in it, or for TensorIR, which is not looked into, all that calls it."""
    functions: dict[str, Origins] = defaultdict(frozenset)
    for name, graph in graphs.items():
        functions[name] |= NONE.union(*graph.origins.values())
        for each, node in graph.nodes.items():
            if "callee" in node:
                functions[node["callee"]] |= graph.origins.get(each, NONE)
    return functions


def _with_origins(entry: JsonObject, graph: _Graph | None, origins: Origins) -> JsonObject:
    known = {} if graph is None else graph.origins
    bindings = [
        {
            **{key: value for key, value in node.items() if key not in _PRIVATE},
            "origins": sorted(known.get(node["name"], NONE)),
        }
        for node in entry["bindings"]
    ]
    return {**entry, "bindings": bindings, "origins": sorted(origins)}
