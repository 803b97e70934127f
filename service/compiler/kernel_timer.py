"""The time of single kernels, of several in turn, so that what else the machine does hits all of them alike."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import IRModule

from service.compiler.build import pass_config
from service.compiler.context import extended
from service.compiler.schedules.computation import shape_of
from service.compiler.schedules.kernel import Kernel
from service.compiler.schedules.writer import dtype_of_buffer, parameter_bytes
from service.compiler.target import threads
from service.runtime.session import Array, aligned_copy

# One sample is so many calls that it takes this long, in ns.
_SAMPLE_NS = 1_000_000
_MOST_SETS = 64
_ROUNDS = 8
# After two rounds those that take this much longer than the best are left out.
HOPELESS = 1.25


def bytes_of(kernel: Kernel) -> int:
    """The bytes of all operands, packed ones as they are read; 0 where one has a symbol for a size, or no elements."""
    sizes = [size for each in kernel.function.params for size in shape_of(each)]
    is_empty = any(isinstance(size, int) and size == 0 for size in sizes)
    return 0 if is_empty else parameter_bytes(kernel.function)


class Operands:
    """What the kernels that stand for one function are called with; they share the memory.

    Several sets are used in turn: a kernel must not find in the cache what it would not find there in the model.
    """

    def __init__(self) -> None:
        self._turns = 1
        self._memory: dict[tuple[int, int], Array] = {}

    def turns_for(self, own_bytes: int, walked_bytes: int) -> None:
        """Has as many sets of `own_bytes` as make `walked_bytes`, what a run of the whole model reads and writes."""
        self._turns = min(max(walked_bytes // own_bytes, 1), _MOST_SETS)

    def sets(self, kernel: Kernel) -> list[list[Any]]:
        """Tensors for the parameters of `kernel`."""
        numbers = range(self._turns)
        return [[self._tensor(turn, *each) for each in enumerate(kernel.function.params)] for turn in numbers]

    def _tensor(self, turn: int, position: int, parameter: Any) -> Any:
        shape, dtype = [int(each) for each in shape_of(parameter)], dtype_of_buffer(parameter)
        memory = self._memory.get((turn, position))
        if memory is None or memory.size < math.prod(shape):
            # What a number is changes nothing of the speed; as an index, 0 is within every table.
            value = 0.5 if dtype.startswith("float") else 0
            memory = aligned_copy(np.full(math.prod(shape), value, dtype))
            self._memory[turn, position] = memory
        return tvm.runtime.from_dlpack(memory[: math.prod(shape)].reshape(shape))


class TimedKernel:
    """A kernel that is built, and what it is called with. `first_ns` is a first measurement of it."""

    def __init__(self, kernel: Kernel, target: Any, operands: Operands) -> None:
        """Raises what tvm raises when it cannot be built."""
        mod = IRModule({"main": kernel.function.with_attr("global_symbol", "main")})
        with extended(pass_config(mod)):
            self._function = tvm.tirx.build(mod, target=target)["main"]
        self._turns: Iterator[list[Any]] = itertools.cycle(operands.sets(kernel))
        # The processor's time does not count what others do meanwhile, but it counts all threads.
        self._clock: Callable[[], int] = time.thread_time_ns if threads(target) == 1 else time.perf_counter_ns
        self._calls = 1
        first = min(self.sample() for _ in range(3))
        self._calls = max(math.ceil(_SAMPLE_NS / max(first, 1.0)), 1)
        self.first_ns = min(self.sample() for _ in range(2))

    def sample(self) -> float:
        """The time of one call in ns, as the mean of a few."""
        function, turns = self._function, self._turns
        start = self._clock()
        for _ in range(self._calls):
            function(*next(turns))
        return (self._clock() - start) / self._calls


def race(kernels: Sequence[TimedKernel], until: float, rounds: int = _ROUNDS) -> list[float]:
    """The least time of each in ns, measured in turn; what is far behind after two rounds is not measured further.

    Ends after the round in which `until` passes (of `time.perf_counter`).
    """
    best = [math.inf] * len(kernels)
    running = list(range(len(kernels)))
    for number in range(rounds):
        for index in running:
            best[index] = min(best[index], kernels[index].sample())
        if number >= 1:
            running = [index for index in running if best[index] <= HOPELESS * min(best)]
        if time.perf_counter() > until:
            break
    return best
