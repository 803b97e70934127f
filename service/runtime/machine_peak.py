"""What this machine's core can do at most, measured: floating-point operations and bytes a second, one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  the builder's usual name
from tvm.target import codegen

from service.errors import JsonObject

# float32 values of a vector register, with AVX2 and with AVX-512.
_LANES = (8, 16)
_ACCUMULATORS = 12
_ROUNDS = 1 << 12
_STREAM_BYTES = 128 << 20
_REPEATS = 5


@dataclass(frozen=True)
class Peak:
    """float32 multiply-adds counted as two operations, and bytes read from main memory, each a second."""

    flops_per_s: float
    bytes_per_s: float

    def to_json(self) -> JsonObject:
        return asdict(self)


def measure_peak() -> Peak:
    """Takes about 200 ms."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
    stream = np.ones(_STREAM_BYTES // 4, np.float32)
    flops_per_s = max(_multiply_adds_per_s(target, lanes) * 2 for lanes in _LANES)
    return Peak(flops_per_s, stream.nbytes / _best(lambda: float(stream.max())))


def _multiply_adds_per_s(target: Any, lanes: int) -> float:
    multiply_add = tvm.tirx.build(tvm.IRModule({"peak": _multiply_adds(lanes)}), target=target)["peak"]
    operand = tvm.runtime.tensor(np.full(lanes, 1.0, np.float32))
    sums = tvm.runtime.tensor(np.zeros(lanes * _ACCUMULATORS, np.float32))
    return lanes * _ACCUMULATORS * _ROUNDS / _best(lambda: multiply_add(operand, sums))


def _best(run: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _multiply_adds(lanes: int) -> tirx.PrimFunc:
    """Independent chains of multiply-adds that stay in registers: as many as hide the latency of one."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("peak")
        T.func_attr({"global_symbol": "peak", "tirx.noalias": True})
        operand = T.arg("operand", T.buffer([lanes], "float32"))
        result = T.arg("result", T.buffer([lanes * _ACCUMULATORS], "float32"))
        with T.sblock("root"):
            sums = T.alloc_buffer([lanes * _ACCUMULATORS], "float32", scope="local")
            for chain in range(_ACCUMULATORS):
                with T.vectorized(0, lanes) as lane:
                    T.buffer_store(sums, result[chain * lanes + lane], [chain * lanes + lane])
            with T.serial(0, _ROUNDS):
                for chain in range(_ACCUMULATORS):
                    with T.vectorized(0, lanes) as lane:
                        value = sums[chain * lanes + lane] * operand[lane] + operand[lane]
                        T.buffer_store(sums, value, [chain * lanes + lane])
            for chain in range(_ACCUMULATORS):
                with T.vectorized(0, lanes) as lane:
                    T.buffer_store(result, sums[chain * lanes + lane], [chain * lanes + lane])
    return builder.get()
