"""Matrix products.

TVM's importer gives them out_dtype float32, so that float16, bfloat16, float64 and integers fail or lose their dtype,
and leaves memory unwritten where the inner dimension is empty.
"""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from service.compiler.promotion import narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation, dtype_name


def _product(t: Translation, left: Any, right: Any, value: Any, dtype: torch.dtype) -> Any:
    """left @ right of two nodes in `dtype`; the inner dimension may be empty."""
    inner = left.meta["val"].shape[-1]
    if isinstance(inner, int) and inner == 0:
        return t.emit(relax.op.zeros(t.shape(value), dtype_name(dtype)))
    return t.emit(relax.op.matmul(t.tensor(left, dtype), t.tensor(right, dtype)))


def _matmul(t: Translation, a: Arguments) -> Any:
    left, right = a.node.args[:2]
    dtype = widened(a.result.dtype)
    return narrowed(t, a, _product(t, left, right, a.result, dtype), dtype)


def _scaled_sum(t: Translation, a: Arguments, left: Any, right: Any) -> Any:
    """beta * self + alpha * (left @ right); a beta of 0 leaves `self` unread, NaN or not."""
    dtype = widened(a.result.dtype)
    product = _product(t, left, right, a.result, dtype)
    if a.alpha != 1:
        product = t.emit(relax.op.multiply(product, t.tensor(a.alpha, dtype)))
    if a.beta == 0:
        return narrowed(t, a, product, dtype)
    base = t.tensor(a.self, dtype)
    if a.beta != 1:
        base = t.emit(relax.op.multiply(base, t.tensor(a.beta, dtype)))
    return narrowed(t, a, relax.op.add(product, base), dtype)


def _linear(t: Translation, a: Arguments) -> Any:
    dtype = widened(a.result.dtype)
    if a.weight.meta["val"].shape[-1] == 0:
        product = t.emit(relax.op.zeros(t.shape(a.result), dtype_name(dtype)))
    else:
        weight = t.emit(relax.op.permute_dims(t.tensor(a.weight, dtype), [1, 0]))
        product = t.emit(relax.op.matmul(t.tensor(a.input, dtype), weight))
    if a.bias is not None:
        product = t.emit(relax.op.add(product, t.tensor(a.bias, dtype)))
    return narrowed(t, a, product, dtype)


CONVERTERS: dict[str, Converter] = {
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.dot.default": _matmul,
    "aten.addmm.default": lambda t, a: _scaled_sum(t, a, a.mat1, a.mat2),
    "aten.addmv.default": lambda t, a: _scaled_sum(t, a, a.mat, a.vec),
    "aten.baddbmm.default": lambda t, a: _scaled_sum(t, a, a.batch1, a.batch2),
}
