"""An Artifact loaded and ready to run. Imports tvm but never torch: an infer worker blocks torch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from service.errors import CheckFailed, ExecutionFailed, IndexOutOfRange, Problem
from service.runtime.threads import threads_of
from service.runtime.tvm_errors import readable_message

ALIGNMENT = 64
ENTRY = "main"
# How a library's assertion begins, before the number of the check that failed; the lines after it are the checks.
FAILED_CHECK = "failed check"
OUTSIDE_RANGE = "an index is outside its range"

Array = np.ndarray[Any, np.dtype[Any]]


def _load_library(path: str) -> Any:
    # `tvm.runtime.load_module` judges by the suffix, and the store names files by their hash alone.
    return tvm.get_global_func("ffi.Module.load_from_file.so")(path, "so")


class Session:
    """One virtual machine over a compiled library.

    A Session is not thread-safe: its virtual machine keeps registers and buffers between the instructions of a call.
    Use one Session per thread, or a lock. `threads` is how many the library asks for (`allow_threads`).
    """

    def __init__(self, library: Any) -> None:
        """Loads `library`: the path of a linked library, or an executable built in this process.

        Raises ExecutionFailed when it cannot be loaded.
        """
        try:
            module = _load_library(library) if isinstance(library, str) else library
            self._vm = relax.VirtualMachine(module, tvm.cpu())
            self._entry = self._vm[ENTRY]
            self.threads = threads_of(getattr(module, "mod", module))
        except Exception as error:
            raise ExecutionFailed(f"The library could not be loaded: {readable_message(error)}") from error

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for `inputs`, which stand in the Signature's order with its shapes and dtypes.

        Inputs may have any strides and alignment; they are copied. Outputs are fresh arrays, tuples flattened.
        Raises ExecutionFailed when an input does not fit or a kernel fails, IndexOutOfRange and CheckFailed where the
        values of the inputs are not such that the model takes them.
        """
        try:
            arguments = [as_tensor(aligned_copy(value)) for value in inputs]
        except Exception as error:
            raise ExecutionFailed(f"The model could not be run: {readable_message(error)}") from error
        # A copy: an output may share its memory with an input or with a weight.
        return [result.numpy() for result in self.call(arguments)]

    def call(self, arguments: Sequence[Any]) -> list[Any]:
        """As `run`, with tensors of `as_tensor`, and the outputs as the machine gives them.

        These may share their memory with an input or with a weight. Raises as `run`.
        """
        try:
            return list(_flatten(self._entry(*arguments)))
        except AssertionError as error:
            raise _refusal(str(error)) from error
        except Exception as error:
            raise ExecutionFailed(f"The model could not be run: {readable_message(error)}") from error

    @contextlib.contextmanager
    def instrumented(self, recorder: Callable[..., None]) -> Iterator[None]:
        """Has `recorder` called around each call of the virtual machine in the body.

        With the function, its name, whether it is before the call, the result, and the arguments.
        """
        self._vm.set_instrument(recorder)
        try:
            yield
        finally:
            self._vm.set_instrument(_nothing)


def _refusal(text: str) -> Problem:
    """The Problem of a check that was compiled into the library, from the text of its assertion."""
    first, *checks = text.split("\n")
    number = first.removeprefix(FAILED_CHECK).strip()
    known = number.isdecimal() and int(number) < len(checks)
    message = checks[int(number)] if known else readable_message(AssertionError(text))
    problem = IndexOutOfRange if OUTSIDE_RANGE in message else CheckFailed
    operator = message.partition(":")[0].partition(" ")[0]
    return problem(f"The model refuses these inputs: {message}.", operator=operator)


def _nothing(*_: Any) -> None:
    """No instrument: the virtual machine has no way to take one back."""


def aligned_copy(value: Array) -> Array:
    """A contiguous copy of `value` that starts at a multiple of 64 bytes: kernels use aligned vector loads."""
    size = math.prod(value.shape) * value.dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy: Array = memory[start : start + size].view(value.dtype).reshape(value.shape)
    np.copyto(copy, value)
    return copy


def as_tensor(value: Array) -> Any:
    """A tensor for the virtual machine: over the memory of `value`, which must be contiguous and aligned.

    A copy where that cannot be: of nothing, and of bfloat16.
    """
    if value.size == 0:
        # Numpy gives an empty view any address, which from_dlpack refuses.
        return tvm.runtime.empty(value.shape, str(value.dtype))
    if value.dtype.kind == "V":
        # DLPack has no bfloat16 of numpy's.
        return tvm.runtime.empty(value.shape, str(value.dtype)).copyfrom(np.ascontiguousarray(value))
    return tvm.runtime.from_dlpack(value)


def as_array(tensor: Any) -> Array:
    """An array over the memory of the virtual machine's tensor; a copy where numpy knows no such dtype."""
    return tensor.numpy() if tensor.dtype == "bfloat16" else np.from_dlpack(tensor)


def _flatten(result: Any) -> list[Any]:
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [tensor for item in result for tensor in _flatten(item)]
