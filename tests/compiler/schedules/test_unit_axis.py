"""Results without the unit axis of their fold: service.compiler.schedules.unit_axis."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te, tirx

from service.compiler.schedules.block_form import write
from service.compiler.schedules.computation import inlined, read, shape_of
from service.compiler.schedules.unit_axis import with_unit_axis
from tests.compiler.schedules.kernels import numbers


def program(read_at, rows=1):
    x = te.placeholder((3, rows, 5, 4), name="x")
    k = te.reduce_axis((0, 4), name="k")
    total = te.compute((3, rows, 5), lambda i, r, j: te.sum(x[i, r, j, k], axis=[k]), name="total")
    y = te.compute((3, 5), lambda i, j: total(*read_at(i, j)) + tirx.const(1, "float32"), name="y")
    return inlined(read(te.create_prim_func([x, y], "int64")))


def test_the_axis_is_put_back_and_the_bytes_stay():
    narrow = program(lambda i, j: (i, 0, j))
    wide, place = with_unit_axis(narrow)
    assert place == 1
    assert shape_of(wide.outputs[0]) == [3, 1, 5]
    x = tvm.runtime.tensor(numbers(3, 1, 5, 4))
    results = []
    for each, shape in ((narrow, (3, 5)), (wide, (3, 1, 5))):
        out = tvm.runtime.tensor(np.zeros(shape, "float32"))
        function = write(each, {}).with_attr("global_symbol", "f")
        tvm.compile(tvm.IRModule({"f": function}), target="llvm")["f"](x, out)
        results.append(out.numpy().ravel())
    np.testing.assert_array_equal(*results)


def test_other_maps_are_left_alone():
    assert with_unit_axis(program(lambda i, j: (i, 1, j), rows=2)) is None
    assert with_unit_axis(program(lambda i, j: (2 - i, 0, j))) is None
    x = te.placeholder((3, 5), name="x")
    assert (
        with_unit_axis(inlined(read(te.create_prim_func([x, te.compute((3, 5), lambda i, j: x[i, j])], "int64"))))
        is None
    )
