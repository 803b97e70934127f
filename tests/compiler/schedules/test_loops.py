"""Recurrent layers, whose functions have loops of their own, against the loops as they came."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from service.compiler.corrections.recurrent import GRU, LSTM, TANH, _kernel
from service.compiler.schedules import loops
from service.compiler.schedules.expressions import Unsupported
from service.compiler.schedules.kernel import Situation
from tests.compiler.schedules.kernels import UNITS, close, compiled, numbers


def recurrence(kind, steps, batch, width, reverse):
    total = kind.gates * width
    shapes = ((steps, batch, total), (width, total), (total,), (batch, width), (batch, width))
    given = [te.placeholder(shape, name=f"p{i}") for i, shape in enumerate(shapes)]
    out = [(steps, batch, width), (batch, width), (batch, width), (batch, total + width)]
    results = te.extern(out, given, _kernel(kind, reverse, False), dtype=["float32"] * 4, name="recurrence")
    return te.create_prim_func([*given, *results], "int64"), shapes, out


@pytest.mark.parametrize(
    ("kind", "batch", "width", "unit", "reverse"),
    [
        (LSTM, 1, 16, "avx512", False),
        (LSTM, 2, 37, "avx2", True),
        (LSTM, 1, 80, "avx512", True),
        (GRU, 1, 37, "avx2", False),
        (GRU, 3, 5, "avx512", True),
        (TANH, 2, 80, "avx2", False),
    ],
)
def test_recurrent_layers_are_as_before(kind, batch, width, unit, reverse):
    function, shapes, out = recurrence(kind, 4, batch, width, reverse)
    kernel = loops.schedule("main", function, Situation(UNITS[unit]))
    results = []
    for each in (function, kernel.function):
        given = [tvm.runtime.tensor(numbers(*shape, seed=i) * np.float32(0.5)) for i, shape in enumerate(shapes)]
        made = [tvm.runtime.tensor(np.full(shape, np.nan, "float32")) for shape in out]
        compiled(each)["main"](*given, *made)
        results.append([tensor.numpy() for tensor in made[:3]])
    for mine, theirs in zip(results[1], results[0], strict=True):
        close(mine, theirs)


def test_a_function_without_loops_that_may_be_turned_is_left():
    x = te.placeholder((4,), name="x")
    function = te.create_prim_func([x, te.compute((4,), lambda i: x[i])], "int64")
    with pytest.raises(Unsupported, match="axes"):
        loops.schedule("main", function, Situation(UNITS["avx2"]))
