"""What a kernel must know of the CPU: the width of its vectors and how many of them it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.target import codegen


@dataclass(frozen=True)
class VectorUnit:
    """One row of the table: bytes of a vector register and the number of registers.

    `chains` is how many additions must be on their way at once to keep the arithmetic busy: its latency in cycles
    times the operations that start in a cycle.
    """

    name: str
    vector_bytes: int
    registers: int
    chains: int

    def lanes(self, dtype: str) -> int:
        """How many elements of `dtype` one register holds."""
        return max(self.vector_bytes // size_of(dtype), 1)


def size_of(dtype: str) -> int:
    """The bytes of an element."""
    bits = int("".join(each for each in dtype if each.isdigit()) or 8)
    return max(bits // 8, 1)


# The first row whose features a target has is taken.
_ROWS: tuple[tuple[frozenset[str], VectorUnit], ...] = (
    (frozenset({"avx512f", "avx512vl"}), VectorUnit("avx512", 64, 32, 8)),
    (frozenset({"avx2", "fma"}), VectorUnit("avx2", 32, 16, 8)),
    (frozenset({"avx"}), VectorUnit("avx", 32, 16, 6)),
    (frozenset({"neon"}), VectorUnit("neon", 16, 32, 8)),
    (frozenset(), VectorUnit("sse2", 16, 16, 6)),
)


def vector_unit(target: Any) -> VectorUnit:
    """The row of the table for a `tvm.target.Target`; the last one, which every CPU has, where there is none."""
    if target is None:
        return _ROWS[-1][1]
    off = {str(feature)[1:] for feature in target.attrs.get("mattr", ()) if str(feature).startswith("-")}
    has = {str(feature) for feature in codegen.llvm_get_cpu_features(target)} - off
    return next(unit for needs, unit in _ROWS if needs <= has)
