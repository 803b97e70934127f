"""Elementwise TensorIR functions over tensors that broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx


def pointwise(t: Any, scalar: Callable[..., Any], *operands: Any, name: str) -> Any:
    """`scalar`, a function of TensorIR scalars, applied to every element of the broadcast `operands`."""

    def compute(*tensors: Any) -> Any:
        shape = broadcast_shape([tensor.shape for tensor in tensors])
        return te.compute(shape, lambda *i: scalar(*[broadcast_read(tensor, i) for tensor in tensors]), name=name)

    return t.te(compute, *operands, name=name)


def broadcast_shape(shapes: list[Any]) -> list[Any]:
    """The common shape, as PyTorch broadcasts: of two sizes, the one that is not 1."""
    rank = max(len(shape) for shape in shapes)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for position, size in enumerate(shape, start=rank - len(shape)):
            if not is_one(size):
                result[position] = size
    return result


def broadcast_read(tensor: Any, index: Any) -> Any:
    """The element of `tensor` that stands at `index` of the broadcast shape."""
    rank = len(tensor.shape)
    own = index[len(index) - rank :] if rank else ()
    return tensor(*[0 if is_one(size) else i for size, i in zip(tensor.shape, own, strict=True)])


def is_one(size: Any) -> bool:
    return (isinstance(size, int) and size == 1) or (isinstance(size, tirx.IntImm) and int(size) == 1)


def dtype_of(scalar: Any) -> str:
    """The dtype of a TensorIR scalar, by name."""
    return str(scalar.ty.dtype if hasattr(scalar, "ty") else scalar.dtype)


def extern(function: str, *operands: Any) -> Any:
    """The function of the C library for the dtype of `operands`."""
    dtype = dtype_of(operands[0])
    return tirx.call_pure_extern(dtype, function + ("f" if dtype == "float32" else ""), *operands)
