"""Scheduled kernels for CPUs, one kernel class a file; the schedule pass asks them in turn for each function."""

from __future__ import annotations

from collections.abc import Callable

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
from service.compiler.schedules.computation import Program
from service.compiler.schedules.kernel import Kernel, Situation

# Raises Unsupported where the function is not of its class.
KernelClass = Callable[[str, Program, Situation], Kernel]

_MODULES = (dense, winograd, convolution, depthwise, batched_matmul, elementwise, rows, columns)
KERNEL_CLASSES: dict[str, KernelClass] = {module.NAME: module.schedule for module in _MODULES}
