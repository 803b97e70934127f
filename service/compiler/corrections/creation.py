"""Tensors from nothing, copies and conversions of dtype.

TVM's importer makes `arange` and `full` of the wrong dtype where a number has another one, and casts to bool by
truncation, so that 0.5 is False; its `full` cannot be lowered for NaN and infinity. What depends on constants alone is
folded by PyTorch before it gets here; these are for sizes that are symbols.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx
from tvm import relax, te, tirx

from service.compiler.translation import Arguments, Converter, Translation, dtype_name
from service.errors import ImportFailed


def full_of_size(t: Translation, size: Any, dtype: torch.dtype) -> Any:
    """A size that is known only at run time, as a () tensor."""
    return t.te(
        lambda sizes: te.compute((), lambda: tirx.Cast(dtype_name(dtype), sizes[0]), name="size"),
        relax.ShapeExpr([size]),
        name="size",
    )


def full(t: Translation, dims: list[Any], value: Any, dtype: torch.dtype) -> Any:
    """A tensor that is `value`, a node or a number, everywhere. `relax.full` cannot be lowered for NaN and infinity."""
    shape = relax.ShapeExpr(dims)
    if isinstance(value, float) and not math.isfinite(value):
        return t.emit(relax.op.broadcast_to(t.tensor(value, dtype), shape))
    return t.emit(relax.op.full(shape, t.tensor(value, dtype), dtype_name(dtype)))


def _like(value: Any) -> Converter:
    return lambda t, a: full(t, t.dims(a.result), value, a.result.dtype)


def _filled(t: Translation, a: Arguments) -> Any:
    value = a.values.get("fill_value", a.values.get("value"))
    return full(t, t.dims(a.result), value, a.result.dtype)


def _scalar_tensor(t: Translation, a: Arguments) -> Any:
    return t.tensor(a.s, a.result.dtype)


def _number(t: Translation, value: Any) -> Any:
    """A bound of arange as an expression of TensorIR or a number."""
    return t.dim(value) if isinstance(value, torch.fx.Node) else value


def _arange(t: Translation, a: Arguments) -> Any:
    start, step = _number(t, a.values.get("start", 0)), _number(t, a.values.get("step", 1))
    dtype = a.result.dtype
    if (
        isinstance(start, float)
        or isinstance(step, float)
        or (not dtype.is_floating_point and dtype is not torch.int64)
    ):
        raise ImportFailed("arange over symbols is compiled for whole numbers only.", step=0)
    name = dtype_name(dtype)
    bounds = relax.ShapeExpr([tirx.const(each, "int64") if isinstance(each, int) else each for each in (start, step)])

    def compute(shape: Any, first_and_step: Any) -> Any:
        first, each = first_and_step
        return te.compute(shape, lambda i: tirx.Cast(name, first + i * each), name="arange")

    return t.te(compute, t.shape(a.result), bounds, name="arange")


def _convert(t: Translation, a: Arguments) -> Any:
    """A conversion that the user asks for: to and from bfloat16 it rounds, whatever else is computed around it."""
    node = next(value for value in a.node.args if isinstance(value, torch.fx.Node))
    source, target = node.meta["val"].dtype, a.result.dtype
    if source == target or torch.bfloat16 not in (source, target) or is_empty(a.result):
        return t.tensor(node, target)
    wide = t.tensor(node, torch.float32)
    attributes = {"op_pattern": _OPAQUE}
    rounded = t.builder.emit_te(
        _rounded_to_bfloat16, wide, primfunc_name_hint="round_to_bfloat16", primfunc_attrs=attributes
    )
    return t.cast(rounded, torch.float32, target)


def is_empty(value: Any) -> bool:
    """Whether a fake tensor has no element, whatever its symbols are."""
    return any(isinstance(size, int) and size == 0 for size in value.shape)


# TVM's OpPatternKind.kOpaque: the kernel is fused with no other.
_OPAQUE = 8


def _rounded_to_bfloat16(x: Any) -> Any:
    """float32 with the digits of bfloat16, to the nearest and of two to the even one; as a kernel of its own.

    Within a fused kernel TVM computes bfloat16 in float32, and drops a conversion there and back.
    """

    def rounded(*i: Any) -> Any:
        bits = tirx.reinterpret("uint32", x(*i))
        last = tirx.bitwise_and(tirx.shift_right(bits, tirx.const(16, "uint32")), tirx.const(1, "uint32"))
        raised = bits + tirx.const(0x7FFF, "uint32") + last
        nearest = tirx.reinterpret("float32", tirx.bitwise_and(raised, tirx.const(0xFFFF0000, "uint32")))
        return tirx.Select(tirx.isnan(x(*i)), x(*i), nearest)

    return te.compute(x.shape, rounded, name="round_to_bfloat16")


def _same(t: Translation, a: Arguments) -> Any:
    return t.tensor(a.node.args[0])


def _copy(t: Translation, a: Arguments) -> Any:
    return broadcast_to(t, t.tensor(a.src, a.result.dtype), a.result)


def broadcast_to(t: Translation, expr: Any, like: Any) -> Any:
    """`expr` in the shape of the fake tensor `like`."""
    dims = t.dims(like)
    if list(expr.ty.shape) == dims:
        return expr
    return t.emit(relax.op.broadcast_to(expr, relax.ShapeExpr(dims)))


CONVERTERS: dict[str, Converter] = {
    "aten.full.default": _filled,
    "aten.full_like.default": _filled,
    "aten.new_full.default": _filled,
    "aten.fill.Scalar": _filled,
    "aten.fill.Tensor": lambda t, a: broadcast_to(t, t.tensor(a.values["value"], a.result.dtype), a.result),
    **{
        f"aten.{name}.default": _like(value)
        for name, value in (
            ("zeros", 0),
            ("ones", 1),
            ("zeros_like", 0),
            ("ones_like", 1),
            ("new_zeros", 0),
            ("new_ones", 1),
        )
    },
    # What was never written has no right value; zeros give nothing away.
    **{
        f"aten.{name}": _like(0)
        for name in (
            "empty.memory_format",
            "empty_like.default",
            "new_empty.default",
            "empty_permuted.default",
            "new_empty_strided.default",
            "empty_strided.default",
        )
    },
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.arange.default": _arange,
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "aten._to_copy.default": _convert,
    "prims.convert_element_type.default": _convert,
    "aten.clone.default": _same,
    "aten.alias.default": _same,
    "aten.detach.default": _same,
    "aten.lift_fresh_copy.default": _same,
    "aten.lift_fresh.default": _same,
    "aten.contiguous.default": _same,
    "aten.copy.default": _copy,
}
