"""Runs kernels on buffers that end where memory ends: reading or writing beyond one kills the process."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import tvm
import tvm_ffi
from tvm import te, topi

from service.compiler.schedules import (
    batched_matmul,
    columns,
    convolution,
    dense,
    depthwise,
    elementwise,
    rows,
    winograd,
)
from tests.compiler.schedules import test_batched_matmul, test_convolution
from tests.compiler.schedules.kernels import compiled, numbers, scheduled

PAGE = mmap.PAGESIZE
KEPT = []


def before_the_end(value: np.ndarray) -> np.ndarray:
    """A copy whose last byte is the last of a page, behind which nothing may be touched; its size is one of vectors."""
    assert value.nbytes % 64 == 0, value.shape
    pages = -(-value.nbytes // PAGE) + 1
    memory = mmap.mmap(-1, pages * PAGE)
    KEPT.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + (pages - 1) * PAGE), PAGE, 0) == 0
    copy = np.frombuffer(memory, value.dtype, value.size, (pages - 1) * PAGE - value.nbytes).reshape(value.shape)
    copy[...] = value
    return copy


def run(kernel, inputs, out):
    arguments = [kernel.packings[i](value) if i in kernel.packings else value for i, value in enumerate(inputs)]
    tensors = [tvm.runtime.from_dlpack(before_the_end(np.ascontiguousarray(each))) for each in arguments]
    compiled(kernel.function)["main"](*tensors, tvm.runtime.from_dlpack(before_the_end(np.zeros(out, "float32"))))


def run_all(schedule, tensors, constants, unit, inputs, out):
    """With every choice, each distinct kernel once."""
    seen = set()
    for choice in scheduled(schedule, tensors, constants, unit).candidates:
        kernel = scheduled(schedule, tensors, constants, unit, choice)
        digest = tvm_ffi.structural_hash(kernel.function)
        if digest not in seen:
            seen.add(digest)
            run(kernel, inputs, out)


def bare_product(m, n, k):
    x, w = te.placeholder((m, k), name="x"), te.placeholder((k, n), name="w")
    axis = te.reduce_axis((0, k))
    return [x, w, te.compute((m, n), lambda i, j: te.sum(x[i, axis] * w[axis, j], axis=axis))]


def main() -> None:
    for unit in ("avx512", "avx2"):
        for m, n, k in ((16, 7, 48), (48, 37, 16), (1, 80, 16), (16, 17, 16)):
            inputs = [numbers(m, k), numbers(k, n)]
            run_all(dense.schedule, bare_product(m, n, k), {1: inputs[1]}, unit, inputs, (m, n))
        for b, m, n, k in ((16, 5, 7, 3), (16, 13, 33, 5)):
            for transposed in (False, True):
                inputs = [numbers(b, m, k), numbers(b, n, k) if transposed else numbers(b, k, n)]
                tensors = test_batched_matmul.product(b, m, n, k, transposed)
                run_all(batched_matmul.schedule, tensors, None, unit, inputs, (b, m, n))
        for channels, outputs, size, k, stride, padding in (
            (16, 7, 12, 3, 1, 1),
            (3, 32, 16, 5, 2, 2),
            (16, 20, 4, 1, 1, 0),
        ):
            w = numbers(outputs, channels, k, k)
            tensors, out = test_convolution.convolved((1, channels, size, size), w.shape, stride, padding, 1)
            inputs = [numbers(1, size, size, channels), w]
            run_all(convolution.schedule, tensors, {1: w}, unit, inputs, out)
        winograd._cost = lambda _, results: -results
        for channels, outputs, size, padding in ((16, 32, 7, 1), (48, 16, 16, 2), (16, 16, 4, 0)):
            w = numbers(outputs, channels, 3, 3)
            tensors, out = test_convolution.convolved((1, channels, size, size), w.shape, 1, padding, 1)
            plain = numbers(1, size, size, channels)
            for x in (plain, np.where(plain > 2, np.float32(np.nan), plain)):
                run_all(winograd.schedule, tensors, {1: w}, unit, [x, w], out)
        w = numbers(21, 1, 4, 4)
        tensors, out = test_convolution.convolved((1, 21, 8, 8), w.shape, 2, 1, 1, single=True)
        run_all(depthwise.schedule, tensors, {1: w}, unit, [numbers(1, 8, 8, 21), w], out)
        x = te.placeholder((16, 37), name="x")
        data = numbers(16, 37)
        run(scheduled(rows.schedule, [x, topi.nn.softmax(x)], None, unit), [data], (16, 37))
        run(scheduled(elementwise.schedule, [x, topi.exp(x)], None, unit), [data], (16, 37))
        run(scheduled(elementwise.schedule, [x, topi.transpose(x)], None, unit), [data], (37, 16))
        y = te.placeholder((37, 16), name="y")
        run(scheduled(columns.schedule, [y, topi.sum(y, axis=0)], None, unit), [numbers(37, 16)], (16,))
    sys.stdout.write("nothing was touched\n")


if __name__ == "__main__":
    main()
