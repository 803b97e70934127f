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
from service.runtime.session import aligned_copy, as_tensor

# float32 values of a vector register, with AVX2 and with AVX-512.
_LANES = (8, 16)
_ACCUMULATORS = 12
# Long enough that what a call costs is lost in it, and short enough that one of the repeats is not interrupted.
_ROUNDS = 1 << 15
STREAM_BYTES = 128 << 20
# The best of some tenths of a second: other guests of the machine take turns with this one.
_TRIED_S = 0.15


@dataclass(frozen=True)
class Peak:
    """float32 multiply-adds counted as two operations, and bytes read from main memory, each a second."""

    flops_per_s: float
    bytes_per_s: float

    def to_json(self) -> JsonObject:
        return asdict(self)


def measure_peak(stream_bytes: int = STREAM_BYTES) -> Peak:
    """Takes about a second. `stream_bytes` are read again and again; what is smaller than a cache shows the cache."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
    return Peak(
        max(_multiply_adds_per_s(target, lanes) * 2 for lanes in _LANES),
        max(_bytes_read_per_s(target, lanes, stream_bytes) for lanes in _LANES),
    )


def _multiply_adds_per_s(target: Any, lanes: int) -> float:
    multiply_add = tvm.tirx.build(tvm.IRModule({"peak": _multiply_adds(lanes)}), target=target)["peak"]
    operand = tvm.runtime.tensor(np.full(lanes, 1.0, np.float32))
    sums = tvm.runtime.tensor(np.zeros(lanes * _ACCUMULATORS, np.float32))
    return lanes * _ACCUMULATORS * _ROUNDS / _best(lambda: multiply_add(operand, sums))


def _bytes_read_per_s(target: Any, lanes: int, stream_bytes: int) -> float:
    rounds = stream_bytes // (4 * lanes * _ACCUMULATORS)
    read = tvm.tirx.build(tvm.IRModule({"peak": _reads(lanes, rounds)}), target=target)["peak"]
    # Written by the copy: pages that nobody wrote to are one and the same.
    stream = as_tensor(aligned_copy(np.broadcast_to(np.float32(1.0), rounds * lanes * _ACCUMULATORS)))
    sums = tvm.runtime.tensor(np.zeros(lanes * _ACCUMULATORS, np.float32))
    return rounds * lanes * _ACCUMULATORS * 4 / _best(lambda: read(stream, sums))


def _best(run: Callable[[], Any]) -> float:
    best, until = float("inf"), time.perf_counter() + _TRIED_S
    while (start := time.perf_counter()) < until or best == float("inf"):
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _multiply_adds(lanes: int) -> tirx.PrimFunc:
    """Independent chains of multiply-adds that stay in registers: as many as hide the latency of one."""
    return _chains(lanes, lanes, _ROUNDS, lambda value, operand, _, at: value * operand[at[1]] + operand[at[1]])


def _reads(lanes: int, rounds: int) -> tirx.PrimFunc:
    """Sums of all that is in memory, in as many chains, so that only reading takes time."""
    count = lanes * _ACCUMULATORS

    def add(value: Any, stream: Any, turn: Any, at: tuple[int, Any]) -> Any:
        return value + stream[turn * count + at[0] * lanes + at[1]]

    return _chains(lanes, rounds * count, rounds, add)


def _chains(lanes: int, operand_size: int, rounds: int, step: Callable[..., Any]) -> tirx.PrimFunc:
    """`rounds` times each vector of sums is made a `step` of itself, the operand, the round, and where it stands."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("peak")
        T.func_attr({"global_symbol": "peak", "tirx.noalias": True})
        operand = T.arg("operand", T.buffer([operand_size], "float32"))
        result = T.arg("result", T.buffer([lanes * _ACCUMULATORS], "float32"))
        with T.sblock("root"):
            sums = T.alloc_buffer([lanes * _ACCUMULATORS], "float32", scope="local")
            for chain in range(_ACCUMULATORS):
                with T.vectorized(0, lanes) as lane:
                    T.buffer_store(sums, result[chain * lanes + lane], [chain * lanes + lane])
            with T.serial(0, rounds) as turn:
                for chain in range(_ACCUMULATORS):
                    with T.vectorized(0, lanes) as lane:
                        value = step(sums[chain * lanes + lane], operand, turn, (chain, lane))
                        T.buffer_store(sums, value, [chain * lanes + lane])
            for chain in range(_ACCUMULATORS):
                with T.vectorized(0, lanes) as lane:
                    T.buffer_store(result, sums[chain * lanes + lane], [chain * lanes + lane])
    return builder.get()
