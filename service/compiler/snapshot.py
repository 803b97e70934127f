"""The IR after one step as text and as structure, bounded in size."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tvm import IRModule, relax

from service.compiler.dataflow import is_primitive
from service.errors import JsonObject, OutputTooLarge


@dataclass(frozen=True)
class Snapshot:
    """JSON bytes as they are stored, and the figures that the Step repeats."""

    blob: bytes
    ops: dict[str, int]
    functions: int


class Snapshots:
    """Takes the Snapshots of one Compilation and bounds the sum of their sizes.

    Functions that a pass left as they were are described once.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._described: dict[Any, JsonObject] = {}

    def take(self, mod: IRModule, **where: Any) -> Snapshot:
        """The Snapshot of `mod`. Raises OutputTooLarge, with `where` as its extensions, when there is no room left."""
        described: dict[Any, JsonObject] = {}
        functions = []
        for gvar, function in mod.functions.items():
            known = self._described.get(function) or _describe(gvar.name_hint, function)
            if known["name"] != gvar.name_hint:
                known = _describe(gvar.name_hint, function)
            described[function] = known
            functions.append(known)
        self._described = described
        functions.sort(key=lambda entry: str(entry["name"]))
        ops: Counter[str] = Counter()
        for entry in functions:
            ops.update(entry["ops"])
        blob = json.dumps({"text": mod.script(show_meta=False), "functions": functions}, ensure_ascii=False).encode()
        self._used_bytes += len(blob)
        if self._used_bytes > self._limit_bytes:
            raise OutputTooLarge(
                f"The IR of this and the earlier steps has {self._used_bytes} bytes, the limit is "
                f"{self._limit_bytes}. Use fewer passes or a smaller model, or ask the operator to raise the limit.",
                limit_bytes=self._limit_bytes,
                **where,
            )
        return Snapshot(blob, dict(sorted(ops.items())), len(functions))


def _describe(name: str, function: Any) -> JsonObject:
    is_relax = isinstance(function, relax.Function)
    ops, calls = _count_calls(function) if is_relax else ({}, [])
    return {
        "name": str(name),
        "kind": "relax" if is_relax else "tensorir",
        "primitive": is_primitive(function),
        "ops": ops,
        "calls": calls,
        "text": _text(str(name), function),
    }


def _text(name: str, function: Any) -> str:
    # By itself a function does not know its name, and prints as `main`.
    lines = function.script(show_meta=False).splitlines()
    start = next((index for index, line in enumerate(lines) if line and not line.startswith("#")), 0)
    end = next((index for index, line in enumerate(lines) if line.startswith("# Metadata omitted")), len(lines))
    text = "\n".join(lines[start:end]).rstrip() + "\n"
    return text.replace("def main(", f"def {name}(", 1)


def _count_calls(function: relax.Function) -> tuple[dict[str, int], list[str]]:
    """How often each Relax operator is called, and the names of the functions that are called."""
    ops: Counter[str] = Counter()
    calls: set[str] = set()

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.GlobalVar):
            calls.add(str(expr.name_hint))
        elif isinstance(expr, relax.Call):
            ops[_operator_name(expr.op)] += 1

    relax.analysis.post_order_visit(function, visit)
    return dict(sorted(ops.items())), sorted(calls)


def _operator_name(operator: Any) -> str:
    if isinstance(operator, relax.ExternFunc):
        return str(operator.global_symbol)
    name = getattr(operator, "name", None)
    if name is None:
        return "call"
    return "call_tir" if name == "relax.call_tir" else str(name)
