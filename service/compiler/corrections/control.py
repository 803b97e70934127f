"""Assertions and symbols: what stands in a graph without being a tensor."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from service.compiler.translation import Arguments, Converter, Translation


def _nothing(t: Translation, a: Arguments) -> Any:
    return None


def _assert(t: Translation, a: Arguments) -> Any:
    condition = t.tensor(a.node.args[0], torch.bool)
    if len(condition.ty.shape):
        condition = t.emit(relax.op.reshape(condition, relax.ShapeExpr([])))
    message = a.values.get("assert_msg") or "the model's own assertion does not hold"
    t.check(a, condition, str(message).replace("{", "(").replace("}", ")"))


def _cond(t: Translation, a: Arguments) -> Any:
    """Both branches are computed, and one is chosen: they have no effects, and checks count only where taken."""
    predicate, on_true, on_false, operands = a.node.args
    taken = t.tensor(predicate, torch.bool)
    if len(taken.ty.shape):
        taken = t.emit(relax.op.reshape(taken, relax.ShapeExpr([])))
    other = t.emit(relax.op.logical_not(taken))
    results = [t.branch(each, operands, when) for each, when in ((on_true, taken), (on_false, other))]
    return [t.emit(relax.op.where(taken, mine, theirs)) for mine, theirs in zip(*results, strict=True)]


CONVERTERS: dict[str, Converter] = {
    "aten._assert_tensor_metadata.default": _nothing,
    # About sizes, which the virtual machine holds against the signature itself.
    "aten._assert_scalar.default": _nothing,
    "aten._assert_async.default": _assert,
    "aten._assert_async.msg": _assert,
    "aten.sym_constrain_range_for_size.default": _nothing,
    "aten.sym_constrain_range.default": _nothing,
    "cond": _cond,
}
