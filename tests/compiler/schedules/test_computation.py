"""Functions read back as what they compute."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from service.compiler.extrema import maximum
from service.compiler.schedules.block_form import write
from service.compiler.schedules.computation import Axis, Indices, inlined, offset, read
from service.compiler.schedules.contraction import find_contraction, find_fold, keeps_places
from service.compiler.schedules.expressions import Unsupported, constant, loads, size
from tests.compiler.schedules.kernels import compiled, numbers


def program_of(*tensors):
    return read(te.create_prim_func(list(tensors), "int64"))


def test_a_softmax_is_two_folds_and_what_is_made_of_them():
    x = te.placeholder((3, 8), name="x")
    program = inlined(program_of(x, topi.nn.softmax(x)))
    assert [each.fold for each in program.computations] == ["max", None, "sum", None]
    assert program.has_inputs_first()


def test_maps_are_written_out_where_they_are_read():
    x = te.placeholder((4, 5), name="x")
    y = topi.multiply(topi.add(x, x), topi.negative(x))
    program = inlined(program_of(x, y))
    assert len(program.computations) == 1
    assert len(loads(program.computations[0].value)) == 3


def test_a_fold_that_keeps_nan_is_told_apart():
    x = te.placeholder((4, 5), name="x")
    k = te.reduce_axis((0, 5))
    fold = te.comm_reducer(maximum, lambda _: tirx.const(-np.inf, "float32"))
    (computation,) = program_of(x, te.compute((4,), lambda i: fold(x[i, k], axis=k))).computations
    assert (computation.fold, computation.keeps_nan) == ("max", True)


def test_a_reshape_keeps_places_and_a_transposition_does_not():
    x, w = te.placeholder((4, 5), name="x"), te.placeholder((5, 6), name="w")
    y = topi.matmul(x, w)
    _, fold, output = find_fold(program_of(x, w, topi.nn.relu(topi.reshape(y, (2, 2, 6)))))
    assert keeps_places(fold, output)
    with pytest.raises(Unsupported, match="other places"):
        find_contraction(program_of(x, w, topi.transpose(y, (1, 0))))


def test_a_program_in_another_layout_computes_the_same():
    x = te.placeholder((2, 3, 4, 5), name="x")
    y = topi.nn.relu(topi.nn.pool2d(x, (2, 2), (1, 1), (1, 1), (0, 0, 0, 0), "max"))
    program = inlined(program_of(x, y))
    order = (0, 2, 3, 1)
    function = write(program, {each: order for each in (program.inputs[0], *(c.buffer for c in program.computations))})
    data, out = numbers(2, 3, 4, 5), tvm.runtime.tensor(np.zeros((2, 3, 4, 3), "float32"))
    compiled(function)["main"](tvm.runtime.tensor(np.ascontiguousarray(data.transpose(order))), out)
    windows = np.lib.stride_tricks.sliding_window_view(data, (2, 2), (2, 3)).max((-1, -2))
    np.testing.assert_array_equal(out.numpy(), np.maximum(windows, 0).transpose(order))


def test_steps_are_known_where_an_index_is_linear():
    i, j = (Axis(tirx.Var(name, "int64"), extent) for name, extent in (("i", 4), ("j", 6)))
    indices = Indices([i, j])
    assert constant(indices.step(i.var * 6 + j.var, i)) == 6
    assert indices.step(tirx.floormod(i.var, 3), i) is None


def test_places_count_in_rows():
    x = te.placeholder((3, 4), name="x")
    (computation,) = program_of(x, topi.exp(x)).computations
    (load,) = loads(computation.value)
    assert size(offset(load.source, load.indices)) > 1
