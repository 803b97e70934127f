"""The IR after one step as text and as structure, bounded in size."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import tvm
from tvm import IRModule
from tvm.ir import Constant
from tvm.script import ir, relax, tirx

from service.compiler.functions import Described, describe, readable_back
from service.compiler.provenance import Origin, Provenance
from service.errors import JsonObject, OutputTooLarge
from service.nouns import Figures


@dataclass(frozen=True)
class Snapshot:
    """JSON bytes as they are stored, and the figures that the Step repeats."""

    blob: bytes
    ops: dict[str, int]
    functions: int
    figures: Figures


@dataclass(frozen=True)
class SnapshotsState:
    """Where the Snapshots of a Compilation stand after one of them; none of it changes later."""

    used_bytes: int
    described: dict[Any, Described]
    ops: Counter[str]
    graphs: Any


class Snapshots:
    """Takes the Snapshots of one Compilation and bounds the sum of their sizes.

    Functions that a pass left as they were are described once.
    """

    def __init__(
        self, limit_bytes: int, origins: Mapping[str, Origin] | None = None, example: JsonObject | None = None
    ) -> None:
        """`origins` has the node of the model of each variable that the importer made; the first Snapshot tells it.

        It tells `example`, too: inputs, and what PyTorch makes of them.
        """
        nodes = list(dict.fromkeys((origins or {}).values()))
        positions = {origin: position for position, origin in enumerate(nodes)}
        self._provenance = Provenance({name: positions[origin] for name, origin in (origins or {}).items()})
        self._of_the_first: JsonObject = {"origins": [origin.to_json() for origin in nodes], "example": example}
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._described: dict[Any, Described] = {}
        self._ops: Counter[str] = Counter()

    def take(self, mod: IRModule, **where: Any) -> Snapshot:
        """The Snapshot of `mod`. Raises OutputTooLarge, with `where` as its extensions, when there is no room left."""
        before = {each.entry["name"]: each.entry for each in self._described.values()}
        self._described = {
            function: self._describe(gvar.name_hint, function) for gvar, function in mod.functions.items()
        }
        entries = sorted((each.entry for each in self._described.values()), key=lambda entry: str(entry["name"]))
        ops: Counter[str] = Counter()
        for entry in entries:
            ops.update(entry["ops"])
        changes = _changes(before, {entry["name"]: entry for entry in entries})
        text = readable_back(mod.script(show_meta=False))
        document: JsonObject = {"text": text, "functions": self._provenance.follow(entries), "changes": changes}
        document |= self._of_the_first
        # Once: the others refer to it.
        self._of_the_first = {}
        blob = json.dumps(document, ensure_ascii=False).encode()
        self._account(len(blob), **where)
        figures = self._figures(entries, changes, {name: ops[name] - self._ops[name] for name in ops | self._ops})
        self._ops = ops
        return Snapshot(blob, dict(sorted(ops.items())), len(entries), figures)

    def state(self) -> SnapshotsState:
        """What the next Snapshot is compared with."""
        return SnapshotsState(self._used_bytes, self._described, self._ops, self._provenance.state())

    def restore(self, state: SnapshotsState) -> None:
        """Goes on as if the latest Snapshot were that of `state`."""
        self._used_bytes, self._described, self._ops = state.used_bytes, state.described, state.ops
        self._provenance.restore(state.graphs)

    def fits(self, size: int) -> bool:
        """Whether a blob of `size` bytes still has room; it is counted when it has."""
        if self._used_bytes + size > self._limit_bytes:
            return False
        self._used_bytes += size
        return True

    def _describe(self, name: str, function: Any) -> Described:
        known = self._described.get(function)
        return known if known is not None and known.entry["name"] == name else describe(str(name), function)

    def _account(self, size: int, **where: Any) -> None:
        if not self.fits(size):
            raise OutputTooLarge(
                f"The IR of this and the earlier steps has {self._used_bytes + size} bytes, the limit is "
                f"{self._limit_bytes}. Use fewer passes or a smaller model, or ask the operator to raise the limit.",
                limit_bytes=self._limit_bytes,
                **where,
            )

    def _figures(self, entries: list[JsonObject], changes: JsonObject, op_changes: dict[str, int]) -> Figures:
        costs = {entry["name"]: entry for entry in entries if entry["kind"] == "tensorir"}
        calls: Counter[str] = Counter()
        for each in self._described.values():
            calls.update({name: count for name, count in each.calls.items() if name in costs})
        return Figures(
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            constants=sum(entry["constants"] for entry in entries),
            constant_bytes=sum(entry["constant_bytes"] for entry in entries),
            flops=_total(costs, calls, "flops"),
            bytes_moved=_total(costs, calls, "bytes_moved"),
            op_changes={name: count for name, count in sorted(op_changes.items()) if count},
            functions_added=len(changes["added"]),
            functions_removed=len(changes["removed"]),
            functions_changed=len(changes["changed"]),
        )


def parse_back(text: str, constants: list[Constant]) -> IRModule:
    """The module whose Snapshot has `text`, with the `constants` that it names (`constants_of`).

    Raises what tvm's parser raises.
    """
    names = {"I": ir, "R": relax, "T": tirx, "TypeVar": TypeVar, "metadata": {"ir.GenericConst": constants}}
    return tvm.script.from_source(text, names)


def _changes(before: dict[str, JsonObject], after: dict[str, JsonObject]) -> JsonObject:
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name]["text"] != before[name]["text"]),
    }


def _total(costs: dict[str, JsonObject], calls: Counter[str], figure: str) -> int | None:
    """The sum over all calls; None where there is no call, or one of unknown cost."""
    if not calls or any(costs[name][figure] is None for name in calls):
        return None
    return sum(int(costs[name][figure]) * count for name, count in calls.items())
