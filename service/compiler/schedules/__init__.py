"""Scheduled kernels for CPUs, one kernel class a file; the schedule pass asks them in turn for each function."""

from __future__ import annotations

from collections.abc import Callable

from service.compiler.schedules import batched_matmul, columns, convolution, dense, elementwise, rows
from service.compiler.schedules.computation import Program
from service.compiler.schedules.kernel import Kernel, Situation

# Raises Unsupported where the function is not of its class.
Schedule = Callable[[str, Program, Situation], Kernel]

KERNEL_CLASSES: dict[str, Schedule] = {module.NAME: module.schedule for module in (dense, convolution, batched_matmul, elementwise, rows, columns)}
