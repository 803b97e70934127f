"""Whether one element of a range of memory stands out among the others."""

from __future__ import annotations

import operator
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.expressions import integer
from service.compiler.schedules.folding import folded
from service.compiler.schedules.writer import local, put, strips, vector

# How many times the mean the largest magnitude may be, and the range in which it may lie: sums of products of such
# numbers neither overflow nor vanish.
RATIO = 128.0
LARGEST = 1e12
SMALLEST = 1e-20
_CHAINS = 4


def even(memory: Any, first: Any, rows: Any, length: int, lanes: int) -> Any:
    """The condition that the float32 elements are of like magnitude; false where there is a NaN or an infinity.

    They are `rows` times `length` elements from the place `first` on. Writes the loops that find it out.
    """
    sums, most = (local(_CHAINS * lanes, "float32") for _ in range(2))
    for buffer in (sums, most):
        for chain in range(_CHAINS):
            with vector(lanes) as lane:
                put(buffer, tirx.const(0.0, "float32"), integer(chain * lanes) + lane)

    def add(place: Any, width: int, chain: int) -> None:
        with vector(width) as lane:
            at = integer(chain * lanes) + lane
            put(sums, sums[at] + tirx.abs(memory[place + lane]), at)
        with vector(width) as lane:
            at = integer(chain * lanes) + lane
            put(most, tirx.max(most[at], tirx.abs(memory[place + lane])), at)

    blocks, rest = divmod(length, _CHAINS * lanes)
    with T.serial(0, rows) as row:
        start = first + row * integer(length)
        with T.serial(0, integer(blocks)) as block:
            for chain in range(_CHAINS):
                add(start + (block * integer(_CHAINS) + integer(chain)) * integer(lanes), lanes, chain)
        strips(rest, lanes, lambda at, width: add(start + integer(length - rest) + at, width, 0))
    total, largest = folded(operator.add, sums, _CHAINS, lanes), folded(tirx.max, most, _CHAINS, lanes)
    number = tirx.Cast("float32", rows * integer(length))
    bounds = largest >= tirx.const(SMALLEST, "float32"), largest <= tirx.const(LARGEST, "float32")
    return tirx.all(*bounds, largest * number <= total * tirx.const(RATIO, "float32"))
