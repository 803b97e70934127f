"""What counts as numbers of like magnitude."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from service.compiler.schedules.computation import read
from service.compiler.schedules.expressions import integer
from service.compiler.schedules.kernel import Kernel
from service.compiler.schedules.magnitudes import LARGEST, RATIO, SMALLEST, even
from service.compiler.schedules.writer import put, writing
from tests.compiler.schedules.kernels import numbers, run


def is_even(value: np.ndarray, lanes: int = 8) -> bool:
    x = te.placeholder(value.shape, name="x")
    program = read(te.create_prim_func([x, te.compute((1,), lambda i: x[i, 0])], "int64"))
    memory, result = program.parameters
    with writing("main", program) as writer:
        found = even(writer.memory[memory], integer(0), integer(value.shape[0]), value.shape[1], lanes)
        with T.If(found):
            for branch, number in ((T.Then, 1.0), (T.Else, 0.0)):
                with branch():
                    put(writer.memory[result], tirx.const(number, "float32"), integer(0))
    return bool(run(Kernel("even", writer.function, {}), [value], (1,))[0])


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (3, 33), (5, 64), (2, 141)])
@pytest.mark.parametrize("lanes", [4, 16])
def test_numbers_of_like_magnitude_are_even_at_every_length(shape, lanes):
    value = numbers(*shape)
    assert is_even(value, lanes)
    for place in ((0, 0), (shape[0] - 1, shape[1] - 1)):
        for special in (np.nan, np.inf, -np.inf, 3e38):
            other = value.copy()
            other[place] = special
            assert not is_even(other, lanes)


def test_the_largest_is_compared_with_the_mean():
    ones = np.ones((4, 1000), "float32")
    for size, wanted in ((0.99 * RATIO, True), (1.2 * RATIO, False), (-1.2 * RATIO, False)):
        value = ones.copy()
        value[2, 999] = size
        assert is_even(value) is wanted


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(0.0, False), (0.5 * SMALLEST, False), (2 * SMALLEST, True), (0.5 * LARGEST, True), (2 * LARGEST, False)],
)
def test_the_magnitudes_are_bounded(size, wanted):
    assert is_even(np.full((2, 40), size, "float32")) is wanted
