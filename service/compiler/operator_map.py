"""From calls of Relax operators to tensor expressions: the operator map of lower_to_tensorir, and what TVM's own
legalizer lacks or gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import IRModule, relax, te, tirx, topi


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


OPERATORS: dict[str, Rule] = {
    "relax.matmul": _matmul,
    "relax.permute_dims": _permute_dims,
    "relax.reshape": _reshape,
    "relax.flatten": _reshape,
    "relax.nn.softmax": _softmax,
    "relax.ewise_fma": _ewise_fma,
    "relax.add": _binary(topi.add),
    "relax.subtract": _binary(topi.subtract),
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

# TVM's legalizer has no rule for the first, and loses NaN in the others.
_LEGALIZER_AMENDMENTS = ("relax.ewise_fma", "relax.nn.relu", "relax.maximum", "relax.minimum")


def legalize(mod: IRModule) -> IRModule:
    """TVM's legalizer with the rules of the operator map for what it lacks or gets wrong. Raises what tvm raises."""
    return relax.transform.LegalizeOps({name: _legalizer_rule(name) for name in _LEGALIZER_AMENDMENTS})(mod)


def has_legalizer_rule(operator: Any) -> bool:
    """Whether `legalize` lowers calls of this Relax operator."""
    return operator.name in _LEGALIZER_AMENDMENTS or operator.get_attr("FLegalize") is not None


def _legalizer_rule(name: str) -> Callable[[Any, Any], Any]:
    fallback = tvm.ir.Op.get(name).get_attr("FLegalize")

    def rule(builder: Any, call: Any) -> Any:
        expression = OPERATORS[name](call)
        if expression is None:
            return call if fallback is None else fallback(builder, call)
        return lower(builder, call, expression)

    return rule


def lower(builder: Any, call: Any, expression: TensorExpression) -> Any:
    """The call_tir of `expression`, whose TensorIR function is added to the module of `builder`."""
    hint = call.op.name.rpartition(".")[2]
    return builder.call_te(expression.compute, *expression.arguments, primfunc_name_hint=hint)
