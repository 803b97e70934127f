"""Reading at indices that are data. Every index is checked when the library runs, and no read leaves its buffer.

TVM's `take`, `gather_elements` and `index_tensor` read whatever stands at a negative or too large index, which serves
the memory of the process or crashes it; paired indices and masks go wrong in its importer.
"""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, te, tirx

from service.compiler.corrections.creation import is_empty
from service.compiler.pointwise import broadcast_read, broadcast_shape
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed
from service.runtime.session import OUTSIDE_RANGE


def check_range(t: Translation, a: Arguments, index: Any, size: Any, negative: bool) -> None:
    """Makes a run fail where an element of the int64 tensor `index` is outside ``[-size, size)``, or ``[0, size)``."""
    rank = len(index.ty.shape)
    key = (index, str(size), negative)
    if key in t.checked or any(isinstance(each, tirx.IntImm) and int(each) == 0 for each in index.ty.shape):
        return
    t.checked.add(key)

    def compute(indices: Any, sizes: Any) -> Any:
        high = tirx.Cast("int64", sizes[0])
        low = tirx.const(0, "int64") - high if negative else tirx.const(0, "int64")
        axes = [te.reduce_axis((0, length), name=f"k{axis}") for axis, length in enumerate(indices.shape)]
        fold = te.comm_reducer(lambda x, y: tirx.And(x, y), lambda name: tirx.const(True, "bool"), name="all_within")  # noqa: PLW0108

        def within() -> Any:
            value = indices(*axes)
            inside = tirx.And(value >= low, value < high)
            return fold(inside, axis=axes) if rank else inside

        return te.compute((), within, name="within")

    condition = t.te(compute, index, relax.ShapeExpr([size]), name="indices_within")
    low = f"-{size}" if negative else "0"
    t.check(a, condition, f"{OUTSIDE_RANGE} from {low} to {size} exclusive")


def within(index: Any, size: Any) -> Any:
    """`index` counted from the end where it is negative, and then moved into the buffer, where it may be read."""
    counted = tirx.Select(index < 0, index + size, index)
    return tirx.max(tirx.min(counted, size - 1), tirx.const(0, "int64"))


def read_safely(tensor: Any, *index: Any) -> Any:
    """The element at `index`, or 0 where the tensor has none."""
    empty = [size for size in tensor.shape if not isinstance(size, tirx.IntImm) and not isinstance(size, int)]
    if not empty:
        return tensor(*index)
    return tirx.if_then_else(tirx.all(*[size > 0 for size in empty]), tensor(*index), tirx.const(0, tensor.dtype))


def zeros_like(t: Translation, value: Any) -> Any:
    """Zeros in the shape and dtype of a fake tensor."""
    return t.emit(relax.op.zeros(t.shape(value), str(value.dtype).removeprefix("torch.")))


def _embedding(t: Translation, a: Arguments) -> Any:
    weight = a.weight.meta["val"]
    index = t.tensor(a.indices, torch.int64)
    check_range(t, a, index, t.dim(weight.shape[0]), negative=False)
    if is_empty(weight) or is_empty(a.result):
        return zeros_like(t, a.result)

    def compute(table: Any, rows: Any) -> Any:
        return te.compute(
            [*rows.shape, table.shape[1]],
            lambda *i: read_safely(table, within(rows(*i[:-1]), table.shape[0]), i[-1]),
            name="embedding",
        )

    return t.te(compute, t.tensor(a.weight), index, name="embedding")


def _index_select(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    if value.ndim == 0:
        check_range(t, a, t.tensor(a.index, torch.int64), 1, negative=False)
        return t.emit(relax.op.reshape(t.tensor(a.self), t.shape(a.result)))
    axis = a.dim % value.ndim
    index = t.tensor(a.index, torch.int64)
    if a.index.meta["val"].ndim == 0:
        index = t.emit(relax.op.reshape(index, [1]))
    check_range(t, a, index, t.dim(value.shape[axis]), negative=False)
    if is_empty(value):
        return zeros_like(t, a.result)

    def compute(x: Any, rows: Any) -> Any:
        shape = [rows.shape[0] if at == axis else size for at, size in enumerate(x.shape)]

        def read(*i: Any) -> Any:
            return read_safely(
                x, *[within(rows(each), x.shape[axis]) if at == axis else each for at, each in enumerate(i)]
            )

        return te.compute(shape, read, name="index_select")

    return t.te(compute, t.tensor(a.self), index, name="index_select")


def _gather(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    index = t.tensor(a.index, torch.int64)
    if is_empty(a.result):
        return zeros_like(t, a.result)
    if value.ndim == 0 or a.index.meta["val"].ndim == 0:
        check_range(t, a, index, 1 if value.ndim == 0 else t.dim(value.shape[0]), negative=False)
        if value.ndim == 0:
            return t.emit(relax.op.reshape(t.tensor(a.self), t.shape(a.result)))
        raise ImportFailed("gather with an index without dimensions cannot be compiled.", step=0)
    axis = a.dim % value.ndim
    check_range(t, a, index, t.dim(value.shape[axis]), negative=False)
    if is_empty(value):
        return zeros_like(t, a.result)

    def compute(x: Any, rows: Any) -> Any:
        def read(*i: Any) -> Any:
            return read_safely(
                x, *[within(rows(*i), x.shape[axis]) if at == axis else each for at, each in enumerate(i)]
            )

        return te.compute(rows.shape, read, name="gather")

    return t.te(compute, t.tensor(a.self), index, name="gather")


def _take(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    size: Any = 1
    for each in t.dims(value):
        size = size * each
    index = t.tensor(a.index, torch.int64)
    check_range(t, a, index, size, negative=True)
    if is_empty(value):
        return zeros_like(t, a.result)
    flat = t.emit(relax.op.reshape(t.tensor(a.self), relax.ShapeExpr([size])))

    def compute(x: Any, rows: Any) -> Any:
        return te.compute(rows.shape, lambda *i: read_safely(x, within(rows(*i), x.shape[0])), name="take")

    return t.te(compute, flat, index, name="take")


def index_tensors(t: Translation, a: Arguments, checked: bool = True) -> list[tuple[int, Any]]:
    """(axis, int64 tensor) of each dimension that is indexed. Raises ImportFailed on masks."""
    value = a.self.meta["val"]
    pairs = []
    for axis, node in enumerate(a.indices):
        if node is None:
            continue
        if node.meta["val"].dtype in (torch.bool, torch.uint8):
            raise ImportFailed(
                "a bool mask selects a number of elements that is known only at run time. Use torch.where, or "
                "multiply by the mask, so that shapes stay the same.",
                step=0,
            )
        index = t.tensor(node, torch.int64)
        if checked:
            check_range(t, a, index, t.dim(value.shape[axis]), negative=True)
        pairs.append((axis, index))
    return pairs


def layout(rank: int, axes: list[int], broadcast_rank: int) -> tuple[int, list[int]]:
    """Where the broadcast dimensions stand in the result of indexing, and the axes that stay, in order."""
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    rest = [axis for axis in range(rank) if axis not in axes]
    return (axes[0] if together else 0), rest


def _index(t: Translation, a: Arguments, checked: bool = True) -> Any:
    value = a.self.meta["val"]
    pairs = index_tensors(t, a, checked)
    if is_empty(value) or is_empty(a.result):
        return zeros_like(t, a.result)
    axes = [axis for axis, _ in pairs]

    def compute(x: Any, *indices: Any) -> Any:
        common = broadcast_shape([index.shape for index in indices])
        first, rest = layout(len(x.shape), axes, len(common))
        kept = [x.shape[axis] for axis in rest]
        shape = [*kept[:first], *common, *kept[first:]]

        def read(*i: Any) -> Any:
            at = i[first : first + len(common)]
            own = dict(zip(rest, [*i[:first], *i[first + len(common) :]], strict=True))
            for axis, index in zip(axes, indices, strict=True):
                own[axis] = within(broadcast_read(index, at), x.shape[axis])
            return read_safely(x, *[own[axis] for axis in range(len(x.shape))])

        return te.compute(shape, read, name="index")

    return t.te(compute, t.tensor(a.self), *[index for _, index in pairs], name="index")


def _isin(t: Translation, a: Arguments) -> Any:
    raise ImportFailed("isin cannot be compiled.", step=0)


def _bucketize(t: Translation, a: Arguments) -> Any:
    """How many boundaries are below (or, with `right`, not above) each value; NaN is above all."""
    from service.compiler.promotion import common_dtype

    if "boundaries" in a.values:
        edges, values = a.boundaries, a.self
    else:
        edges, values = a.sorted_sequence, a.self
        if a.values.get("sorter") is not None or a.values.get("side") not in (None, "left", "right"):
            raise ImportFailed("searchsorted with a sorter cannot be compiled.", step=0)
    right = bool(a.right) or a.values.get("side") == "right"
    if edges.meta["val"].ndim != 1:
        raise ImportFailed("searchsorted in several sequences cannot be compiled.", step=0)
    if is_empty(edges.meta["val"]):
        return zeros_like(t, a.result)
    dtype = common_dtype(edges, values)
    kind = str(a.result.dtype).removeprefix("torch.")

    def compute(limits: Any, x: Any) -> Any:
        k = te.reduce_axis((0, limits.shape[0]), name="k")

        def term(v: Any) -> Any:
            below = limits(k) <= v if right else limits(k) < v
            below = tirx.Or(below, tirx.isnan(v)) if dtype.is_floating_point else below
            return tirx.Select(below, tirx.const(1, kind), tirx.const(0, kind))

        return te.compute(x.shape, lambda *i: te.sum(term(x(*i)), axis=k), name="bucketize")

    return t.te(compute, t.tensor(edges, dtype), t.tensor(values, dtype), name="bucketize")


CONVERTERS: dict[str, Converter] = {
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.gather.default": _gather,
    "aten.take.default": _take,
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": lambda t, a: _index(t, a, checked=False),
    "aten.bucketize.Tensor": _bucketize,
    "aten.searchsorted.Tensor": _bucketize,
}
