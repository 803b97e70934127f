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

from service.compiler.clock import Duration
from service.compiler.functions import bytes_of, readable_back
from service.compiler.kernel_objects import Kernels
from service.errors import JsonObject
from service.listings import bytecode_functions, snapshot_of
from service.nouns import Stage

# The pass of TVM that plans which tensors share memory.
_PLANNED = "StaticPlanBlockMemory"


@dataclass(frozen=True)
class Result:
    """One stage of the build: its Snapshot as JSON bytes, how many functions it has, what it took, facts."""

    stage: Stage
    blob: bytes
    functions: int
    duration: Duration
    details: JsonObject


@tvm.instrument.pass_instrument
class MemoryRecorder:
    """Sees the passes of one build, and what the plan of the memory allocates."""

    def __init__(self) -> None:
        self.plan: JsonObject = {}

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM after each pass."""
        if info.name == _PLANNED:
            self.plan = _memory_plan(mod)


def results(executable: Any, splitting: Duration, memory: JsonObject, kernels: Kernels) -> Iterator[Result]:
    """The stages of a build that has ended: its `executable`, which took `splitting`, and its kernels."""
    bytecode = bytecode_functions(readable_back(executable.as_text()))
    yield _result(Stage.VM, bytecode, splitting, {"memory": memory})
    known = {"kernels": len(kernels.objects), "known_kernels": sum(each.known for each in kernels.objects)}
    yield _result(Stage.TIR, [each.tir for each in kernels.objects], kernels.lowering, known)
    yield _result(Stage.LLVM, [entry for each in kernels.objects for entry in each.llvm], kernels.generating, known)


def _result(stage: Stage, entries: list[JsonObject], duration: Duration, details: JsonObject) -> Result:
    blob = json.dumps(snapshot_of(entries), ensure_ascii=False).encode()
    return Result(stage, blob, len(entries), duration, details)


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
