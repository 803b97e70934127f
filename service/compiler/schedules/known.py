"""The choices that were measured before, for the kernels that are made in the body of `using`."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping

import tvm_ffi

from service.compiler.schedules.choice import Choice
from service.compiler.schedules.expressions import Unsupported
from service.compiler.schedules.kernel import Kernel
from service.tuning import TuningRecord

_records: contextvars.ContextVar[Mapping[str, TuningRecord]] = contextvars.ContextVar("tuning records")


@contextlib.contextmanager
def using(records: Mapping[str, TuningRecord]) -> Iterator[None]:
    """Has `best_known` look into `records`, which are named by their keys."""
    token = _records.set(records)
    try:
        yield
    finally:
        _records.reset(token)


def key_of(kernel: Kernel) -> str:
    """The key of a kernel that the rule has chosen: its class and a digest of its code, without any name."""
    return f"{kernel.name}-{int(tvm_ffi.structural_hash(kernel.function)) & 0xFFFFFFFFFFFFFFFF:016x}"


def best_known(kernel: Kernel, make: Callable[[Choice], Kernel]) -> tuple[Kernel, TuningRecord | None]:
    """`kernel`, or what `make` makes of the choice on record, and that record; None where none fits."""
    records = _records.get({})
    if not records or not kernel.candidates:
        return kernel, None
    record = records.get(key_of(kernel))
    if record is None or record.choice not in kernel.candidates:
        return kernel, None
    if record.choice == kernel.candidates[0]:
        return kernel, record
    try:
        return make(record.choice), record
    except Unsupported:
        return kernel, None
