"""Bags of embeddings: sums, means and maxima of the rows of a table. TVM has no conversion for them."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from service.compiler.corrections.creation import is_empty
from service.compiler.corrections.indexing import check_range, within
from service.compiler.corrections.reductions import all_true
from service.compiler.extrema import maximum
from service.compiler.pointwise import dtype_of
from service.compiler.promotion import widened
from service.compiler.translation import Arguments, Converter, Translation, dtype_name
from service.errors import ImportFailed

_SUM, _MEAN, _MAX = 0, 1, 2


def _kernel(a: Arguments, weighted: bool) -> Any:
    """Over table (rows, width), indices (n,), offsets (bags + …,) and weights (n,): writes (bags, width)."""

    def kernel(ins: Any, outs: Any) -> Any:
        rows, width = ins[0].shape
        count, marks = ins[1].shape[0], ins[2].shape[0]
        ib = IRBuilder()
        with ib, T.seq_scope():
            table, indices, offsets = (T.buffer_proxy(each) for each in ins[:3])
            weights = T.buffer_proxy(ins[3]) if weighted else None
            out = T.buffer_proxy(outs[0])
            state = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
            with T.serial(0, outs[0].shape[0]) as bag:
                first = tirx.max(offsets[bag], 0)
                after = tirx.Select(bag + 1 < marks, offsets[tirx.min(bag + 1, marks - 1)], tirx.Cast("int64", count))
                last = tirx.min(after, count)
                state[0] = tirx.const(0, "int64")
                with T.serial(0, width) as j:
                    out[bag * width + j] = tirx.const(0, str(ins[0].dtype))
                with T.serial(0, tirx.max(last - first, 0)) as k:
                    index = indices[first + k]
                    row = within(index, rows)
                    with T.If(index != a.padding_idx), T.Then():
                        with T.serial(0, width) as j:
                            value = table[row * width + j]
                            if weights is not None:
                                value = value * weights[first + k]
                            old = out[bag * width + j]
                            if a.mode == _MAX:
                                value = tirx.Select(state[0] == 0, value, maximum(old, value))
                            else:
                                value = old + value
                            out[bag * width + j] = value
                        state[0] = state[0] + 1
                if a.mode == _MEAN:
                    with T.serial(0, width) as j:
                        number = tirx.Cast(dtype_of(out[0]), tirx.max(state[0], 1))
                        out[bag * width + j] = out[bag * width + j] / number
        return ib.get()

    return kernel


def _embedding_bag(t: Translation, a: Arguments) -> Any:
    if any(user.args[1] != 0 for user in a.node.users):
        raise ImportFailed("more than the first result of embedding_bag is used, which cannot be compiled.", step=0)
    value, table = a.result[0], a.weight.meta["val"]
    if is_empty(table) or is_empty(a.indices.meta["val"]) or is_empty(a.offsets.meta["val"]):
        raise ImportFailed("embedding_bag is not compiled for empty tables or lists.", step=0)
    dtype = widened(value.dtype)
    indices, offsets = (t.tensor(each, torch.int64) for each in (a.indices, a.offsets))
    check_range(t, a, indices, t.dim(table.shape[0]), negative=False)
    _check_offsets(t, a, offsets)
    tensors = [t.tensor(a.weight, dtype), indices, offsets]
    weighted = a.per_sample_weights is not None
    if weighted:
        tensors.append(t.tensor(a.per_sample_weights, dtype))
    kernel = _kernel(a, weighted)

    def compute(*parts: Any) -> Any:
        bags = parts[2].shape[0] - (1 if a.include_last_offset else 0)
        shape = [bags, parts[0].shape[1]]
        return te.extern([shape], list(parts), kernel, dtype=[dtype_name(dtype)], name="embedding_bag")

    return [t.cast(t.te(compute, *tensors, name="embedding_bag"), dtype, value.dtype), None, None, None]


def _check_offsets(t: Translation, a: Arguments, offsets: Any) -> None:
    """The first offset is 0, none is less than the one before, and none lies beyond the indices."""
    count = t.dim(a.indices.meta["val"].shape[0])

    def compute(marks: Any, sizes: Any) -> Any:
        def ordered(i: Any) -> Any:
            before = tirx.if_then_else(i > 0, marks(tirx.max(i - 1, 0)), tirx.const(0, "int64"))
            return tirx.all(marks(i) >= before, marks(i) <= sizes[0], tirx.Or(i > 0, marks(i) == 0))

        return te.compute(marks.shape, ordered, name="ordered")

    condition = t.te(compute, offsets, relax.ShapeExpr([count]), name="offsets_ordered")
    t.check(a, all_true(t, condition), "the offsets do not start at 0, do not ascend, or lie beyond the indices")


CONVERTERS: dict[str, Converter] = {
    "aten._embedding_bag.default": _embedding_bag,
    "aten._embedding_bag_forward_only.default": _embedding_bag,
}
