"""From calls of Relax operators to tensor expressions: the operator map of lower_to_tensorir, and what TVM's own
legalizer lacks or gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import IRModule, relax, te, tirx, topi
from tvm.ir import Constant

from service.compiler.pointwise import broadcast_read, broadcast_shape
from service.compiler.window_maximum import max_pool2d


@dataclass(frozen=True)
class TensorExpression:
    """What `BlockBuilder.call_te` takes: a function over TE tensors, and its arguments as Relax expressions."""

    compute: Callable[..., Any]
    arguments: tuple[Any, ...]


# A rule gives None when the call is not of the kind that it handles.
Rule = Callable[[Any], TensorExpression | None]


def _is_tensor(expr: Any) -> bool:
    return isinstance(expr.ty, relax.TensorType) and isinstance(expr.ty.shape, relax.ShapeExpr)


def _is_float(expr: Any) -> bool:
    return _is_tensor(expr) and "float" in str(expr.ty.dtype)


def _elementwise(compute: Callable[..., Any]) -> Rule:
    """A rule for operators of one tensor; only floats, since TE does not promote."""

    def rule(call: Any) -> TensorExpression | None:
        return TensorExpression(compute, (call.args[0],)) if _is_float(call.args[0]) else None

    return rule


def _binary(compute: Callable[..., Any]) -> Rule:
    """A rule for operators of two tensors of one dtype, which broadcast."""

    def rule(call: Any) -> TensorExpression | None:
        left, right = call.args
        if not (_is_tensor(left) and _is_tensor(right)) or str(left.ty.dtype) != str(right.ty.dtype):
            return None
        return TensorExpression(compute, (left, right))

    return rule


def _float_binary(compute: Callable[..., Any]) -> Rule:
    rule = _binary(compute)
    return lambda call: rule(call) if _is_float(call.args[0]) else None


def _matmul(call: Any) -> TensorExpression | None:
    left, right = call.args
    if not (_is_float(left) and _is_float(right)) or left.ty.ndim != 2 or right.ty.ndim != 2:
        return None
    if not str(left.ty.dtype) == str(right.ty.dtype) == str(call.ty.dtype):
        return None

    def compute(a: Any, b: Any) -> Any:
        k = te.reduce_axis((0, a.shape[1]), name="k")
        shape = (a.shape[0], b.shape[1])
        return te.compute(shape, lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")

    return TensorExpression(compute, (left, right))


def _permute_dims(call: Any) -> TensorExpression | None:
    if not _is_tensor(call.args[0]):
        return None
    axes = call.attrs.axes
    order = None if axes is None else [int(axis) for axis in axes]
    return TensorExpression(lambda x: topi.transpose(x, order), (call.args[0],))


def _reshape(call: Any) -> TensorExpression | None:
    if not (_is_tensor(call.args[0]) and _is_tensor(call)):
        return None
    return TensorExpression(topi.reshape, (call.args[0], call.ty.shape))


def _softmax(call: Any) -> TensorExpression | None:
    if not _is_float(call.args[0]):
        return None
    axis = int(call.attrs.axis)
    return TensorExpression(lambda x: topi.nn.softmax(x, axis), (call.args[0],))


def _ewise_fma(call: Any) -> TensorExpression | None:
    if not all(_is_float(argument) for argument in call.args):
        return None

    def compute(a: Any, b: Any, c: Any) -> Any:
        return te.compute(a.shape, lambda *i: a(*i) * b(*i) + c(*i), name="ewise_fma")

    return TensorExpression(compute, tuple(call.args))


def _relu(x: Any) -> Any:
    # Not a maximum: that would turn NaN into 0, where PyTorch keeps NaN.
    zero = tirx.const(0, x.dtype)
    return te.compute(x.shape, lambda *i: tirx.Select(x(*i) < zero, zero, x(*i)), name="relu")


def _extremum(better: Callable[[Any, Any], Any], of_integers: Callable[..., Any]) -> Rule:
    """A rule for maximum or minimum that gives NaN where either operand is NaN, as PyTorch does; TVM's loses it."""

    def choose(x: Any, y: Any) -> Any:
        return tirx.Select(tirx.Or(better(x, y), tirx.isnan(x)), x, y)

    def compute(a: Any, b: Any) -> Any:
        left, right = (topi.broadcast_to(operand, topi.add(a, b).shape) for operand in (a, b))
        return te.compute(left.shape, lambda *i: choose(left(*i), right(*i)), name="extremum")

    def rule(call: Any) -> TensorExpression | None:
        same_kind = _binary(of_integers)(call)
        if same_kind is None or not _is_float(call.args[0]):
            return same_kind
        return TensorExpression(compute, same_kind.arguments)

    return rule


def _subtract(a: Any, b: Any) -> Any:
    # Of floats not as a - b: TVM's simplifier takes x - x for 0, also where x is infinite or NaN.
    if "float" not in str(a.dtype):
        return topi.subtract(a, b)
    return topi.add(a, topi.multiply(b, tirx.const(-1, a.dtype))) if _is_scalar(b) else _minus(a, b)


def _is_scalar(x: Any) -> bool:
    return not hasattr(x, "shape")


def _minus(a: Any, b: Any) -> Any:
    shape = broadcast_shape([a.shape, b.shape])
    minus_one = tirx.const(-1, a.dtype)

    def difference(*i: Any) -> Any:
        return broadcast_read(a, i) + broadcast_read(b, i) * minus_one

    return te.compute(shape, difference, name="T_subtract")


def _equality(negated: bool, plain: Callable[..., Any]) -> Rule:
    """Equal or not, where NaN equals nothing; the simplifier takes x == x for True."""

    def compute(a: Any, b: Any) -> Any:
        if "float" not in str(a.dtype):
            return plain(a, b)

        def compare(*i: Any) -> Any:
            x, y = broadcast_read(a, i), broadcast_read(b, i)
            # LLVM gets an ordered comparison also for `!=`, which is False where an operand is NaN.
            unordered = tirx.Or(tirx.isnan(x), tirx.isnan(y))
            return tirx.Select(unordered, tirx.const(negated, "bool"), x != y if negated else x == y)

        return te.compute(broadcast_shape([a.shape, b.shape]), compare, name="T_not_equal" if negated else "T_equal")

    return _binary(compute)


def _layer_norm(call: Any) -> TensorExpression | None:
    """By the mean of squared deviations: E[x²] - E[x]² loses all digits where the mean is large."""
    if not all(_is_float(argument) for argument in call.args):
        return None
    rank = call.args[0].ty.ndim
    axes = [int(axis) % rank for axis in call.attrs.axes]

    def compute(x: Any, scale: Any, shift: Any) -> Any:
        kept = [axis for axis in range(rank) if axis not in axes]
        normal = _normalised(x, axes, kept, float(call.attrs.epsilon))

        def affine(*i: Any) -> Any:
            at = [i[axis] for axis in axes]
            return normal(*i) * scale(*at) + shift(*at)

        return te.compute(x.shape, affine, name="layer_norm")

    return TensorExpression(compute, tuple(call.args))


def _normalised(x: Any, axes: list[int], kept: list[int], epsilon: float) -> Any:
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    count: Any = tirx.const(1, "int64")
    for axis in axes:
        count = count * x.shape[axis]
    count = tirx.Cast(x.dtype, count)
    shape = [x.shape[axis] for axis in kept]

    def fold(term: Callable[..., Any], name: str) -> Any:
        reduce_axes = {axis: te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in axes}

        def body(*i: Any) -> Any:
            outer = dict(zip(kept, i, strict=True))
            index = [reduce_axes.get(axis, outer.get(axis)) for axis in range(len(x.shape))]
            return te.sum(term(index, i), axis=list(reduce_axes.values()))

        return te.compute(shape, body, name=name)

    total = fold(lambda index, _: x(*index), "total")
    mean = te.compute(shape, lambda *i: total(*i) / count, name="mean")
    squares = fold(lambda index, i: (x(*index) - mean(*i)) * (x(*index) - mean(*i)), "squares")
    spread = tirx.const(epsilon, x.dtype)
    scale = te.compute(shape, lambda *i: tirx.const(1, x.dtype) / tirx.sqrt(squares(*i) / count + spread), name="rstd")

    def normal(*i: Any) -> Any:
        at = [i[axis] for axis in kept]
        return (x(*i) - mean(*at)) * scale(*at)

    return te.compute(x.shape, normal, name="normal")


def _group_norm(call: Any) -> TensorExpression | None:
    """As layer_norm, over the channels of a group and the axes after them."""
    if not all(_is_float(argument) for argument in call.args) or int(call.attrs.channel_axis) != 1:
        return None
    groups, rank = int(call.attrs.num_groups), call.args[0].ty.ndim

    def compute(x: Any, scale: Any, shift: Any) -> Any:
        own = tirx.floordiv(x.shape[1], groups)
        split = te.compute(
            [x.shape[0], groups, own, *x.shape[2:]], lambda n, g, c, *i: x(n, g * own + c, *i), name="grouped"
        )
        normal = _normalised(split, list(range(2, rank + 1)), [0, 1], float(call.attrs.epsilon))

        def affine(n: Any, c: Any, *i: Any) -> Any:
            return normal(n, tirx.floordiv(c, own), tirx.floormod(c, own), *i) * scale(c) + shift(c)

        return te.compute(x.shape, affine, name="group_norm")

    return TensorExpression(compute, tuple(call.args))


def _max_pool2d(call: Any) -> TensorExpression | None:
    attrs = call.attrs
    padding = [int(pad) for pad in attrs.padding]
    if not _is_float(call.args[0]) or attrs.ceil_mode or str(attrs.layout) != "NCHW" or padding[:2] != padding[2:]:
        return None
    window, stride, dilation = (
        (int(each[0]), int(each[1])) for each in (attrs.pool_size, attrs.strides, attrs.dilation)
    )

    def compute(x: Any) -> Any:
        return max_pool2d(x, window, stride, (padding[0], padding[1]), dilation)

    return TensorExpression(compute, (call.args[0],))


def _is_zero(expr: Any) -> bool:
    """Whether `expr` is a constant without dimensions that is 0."""
    return isinstance(expr, Constant) and not expr.ty.shape and not expr.value.numpy().any()


def _unless_zero(compute: Callable[..., Any]) -> Rule:
    """For operators whose rule by TVM inlines a constant 0, of which the simplifier makes x * 0 = 0 and x + 0 = x."""
    rule = _float_binary(compute)
    return lambda call: rule(call) if any(_is_zero(operand) for operand in call.args) else None


OPERATORS: dict[str, Rule] = {
    "relax.matmul": _matmul,
    "relax.permute_dims": _permute_dims,
    "relax.reshape": _reshape,
    "relax.flatten": _reshape,
    "relax.nn.softmax": _softmax,
    "relax.ewise_fma": _ewise_fma,
    "relax.add": _binary(topi.add),
    "relax.subtract": _binary(_subtract),
    "relax.multiply": _binary(topi.multiply),
    "relax.divide": _float_binary(topi.divide),
    "relax.maximum": _extremum(lambda x, y: x > y, topi.maximum),
    "relax.minimum": _extremum(lambda x, y: x < y, topi.minimum),
    "relax.nn.relu": _elementwise(_relu),
    "relax.tanh": _elementwise(topi.tanh),
    "relax.sigmoid": _elementwise(topi.sigmoid),
    "relax.exp": _elementwise(topi.exp),
    "relax.log": _elementwise(topi.log),
    "relax.sqrt": _elementwise(topi.sqrt),
    "relax.abs": _elementwise(topi.abs),
    "relax.negative": _elementwise(topi.negative),
}

# What TVM's legalizer has no rule for, or a rule that is not IEEE arithmetic or loses digits.
_AMENDMENTS: dict[str, Rule] = {
    **{
        name: OPERATORS[name]
        for name in (
            "relax.ewise_fma",
            "relax.nn.relu",
            "relax.maximum",
            "relax.minimum",
        )
    },
    "relax.equal": _equality(negated=False, plain=topi.equal),
    "relax.not_equal": _equality(negated=True, plain=topi.not_equal),
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.max_pool2d": _max_pool2d,
    "relax.subtract": _float_binary(_subtract),
    "relax.add": _unless_zero(topi.add),
    "relax.multiply": _unless_zero(topi.multiply),
    "relax.divide": _unless_zero(topi.divide),
}


def legalize(mod: IRModule) -> IRModule:
    """TVM's legalizer with the rules of the operator map for what it lacks or gets wrong. Raises what tvm raises."""
    return relax.transform.LegalizeOps({name: _legalizer_rule(name) for name in _AMENDMENTS})(mod)


def has_legalizer_rule(operator: Any) -> bool:
    """Whether `legalize` lowers calls of this Relax operator."""
    return operator.name in _AMENDMENTS or operator.get_attr("FLegalize") is not None


def _legalizer_rule(name: str) -> Callable[[Any, Any], Any]:
    fallback = tvm.ir.Op.get(name).get_attr("FLegalize")

    def rule(builder: Any, call: Any) -> Any:
        expression = _AMENDMENTS[name](call)
        if expression is None:
            return call if fallback is None else fallback(builder, call)
        return lower(builder, call, expression)

    return rule


def lower(builder: Any, call: Any, expression: TensorExpression) -> Any:
    """The call_tir of `expression`, whose TensorIR function is added to the module of `builder`."""
    hint = call.op.name.rpartition(".")[2]
    return builder.call_te(expression.compute, *expression.arguments, primfunc_name_hint=hint)
