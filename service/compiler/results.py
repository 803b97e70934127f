"""What the build makes of the module after the last pass, as Snapshots: bytecode, lowered TensorIR, LLVM IR.

The assembly is not among them: printing it would cost a second code generation. It is read off the linked library on
request (`service.worker.linking`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import IRModule, relax

from service.compiler.clock import Duration, Stopwatch
from service.compiler.functions import bytes_of, describe, readable_back
from service.errors import JsonObject
from service.listings import bytecode_functions, llvm_functions, snapshot_of
from service.nouns import Stage

# The passes of TVM's build that part one result from the next.
_PLANNED = "StaticPlanBlockMemory"
_FIRST_OF_TIR = "tirx.BindTarget"
_FIRST_OF_HOST = "tirx.MakePackedAPI"


@dataclass(frozen=True)
class Result:
    """One stage of the build: its Snapshot as JSON bytes, how many functions it has, what it took, facts."""

    stage: Stage
    blob: bytes
    functions: int
    duration: Duration
    details: JsonObject


@tvm.instrument.pass_instrument
class BuildRecorder:
    """Sees the passes of one build: keeps the module at the places that are worth showing, and the time up to them."""

    def __init__(self) -> None:
        self.lowered: IRModule | None = None
        self.memory: JsonObject = {}
        self._clock = Stopwatch()
        self._phases: dict[Stage, Duration] = {}

    def run_before_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM before each pass, nested ones too."""
        if info.name == _FIRST_OF_TIR and Stage.VM not in self._phases:
            self._end(Stage.VM)
        elif info.name == _FIRST_OF_HOST and self.lowered is None:
            self.lowered = mod
            self._end(Stage.TIR)

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM after each pass."""
        if info.name == _PLANNED:
            self.memory = _memory_plan(mod)

    def results(self, executable: Any) -> Iterator[Result]:
        """The stages of a build that has ended, `executable` its result."""
        self._end(Stage.LLVM)
        yield self._result(Stage.VM, bytecode_functions(readable_back(executable.as_text())), {"memory": self.memory})
        if self.lowered is not None:
            # The target is the same for all, and long.
            kernels = [(gvar, each.without_attr("target")) for gvar, each in self.lowered.functions.items()]
            entries = [describe(_kernel_name(gvar, function), function).entry for gvar, function in kernels]
            yield self._result(Stage.TIR, sorted(entries, key=lambda entry: str(entry["name"])), {})
        libraries = [module for module in executable.mod.imports if module.kind == "llvm"]
        llvm = [entry for library in libraries for entry in llvm_functions(library.inspect_source("ll"))]
        yield self._result(Stage.LLVM, llvm, {})

    def _end(self, stage: Stage) -> None:
        self._phases[stage] = self._clock.lap()

    def _result(self, stage: Stage, entries: list[JsonObject], details: JsonObject) -> Result:
        blob = json.dumps(snapshot_of(entries), ensure_ascii=False).encode()
        return Result(stage, blob, len(entries), self._phases.get(stage, Duration()), details)


def _kernel_name(gvar: Any, function: Any) -> str:
    symbol = (function.attrs or {}).get("global_symbol")
    return str(symbol or gvar.name_hint)


def _memory_plan(mod: IRModule) -> JsonObject:
    """Bytes that the plan allocates, and of the tensors that live in them; the rest of the latter is reused memory."""
    storages, tensors = 0, 0
    for function in mod.functions.values():
        if not isinstance(function, relax.Function):
            continue
        calls: list[Any] = []
        relax.analysis.post_order_visit(function, lambda expr, calls=calls: calls.append(expr))
        for call in calls:
            name = getattr(getattr(call, "op", None), "name", "") if isinstance(call, relax.Call) else ""
            if name == "relax.memory.alloc_storage":
                storages += _bytes_of(call.args[0], "uint8")
            elif name == "relax.memory.alloc_tensor":
                tensors += _bytes_of(call.args[2], str(call.ty.dtype))
    if not storages:
        return {}
    return {"allocated_bytes": storages, "tensor_bytes": tensors, "reused_bytes": max(tensors - storages, 0)}


def _bytes_of(shape: Any, dtype: str) -> int:
    """0 where a size, or the whole shape, is a symbol."""
    return (bytes_of(shape.values, dtype) or 0) if isinstance(shape, relax.ShapeExpr) else 0
