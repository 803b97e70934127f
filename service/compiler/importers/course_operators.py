"""The two operator sets of the course translator: operators of Relax, and tensor expressions that `emit_te` lowers.

Both compute the same. With operators of Relax the module is lowered by passes; with tensor expressions every operator
is a call of a TensorIR function from the start, and what is left to passes is to fuse them.
"""

from __future__ import annotations

from typing import Any, Protocol

from tvm import relax, te, tirx, topi

from service.compiler.window_maximum import Pair, max_pool2d


class Emitter:
    """Emits bindings for one node of the graph after the other, named after it."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self._name = ""
        self.emitted: list[str] = []

    def begin(self, name: str) -> None:
        """From now on it is for the node of that name; `emitted` has the variables of this one only."""
        self._name, self.emitted = name, []

    def emit(self, call: Any) -> Any:
        """`call` bound to a variable."""
        var = self._builder.emit(call, name_hint=self._name)
        self.emitted.append(str(var.name))
        return var

    def emit_te(self, compute: Any, *arguments: Any, name: str) -> Any:
        """The lecture's emit_te: a TensorIR function of a tensor expression, and its call_tir bound to a variable."""
        return self.emit(self._builder.call_te(compute, *arguments, primfunc_name_hint=name))


class OperatorSet(Protocol):
    """What the rules of the translator are made of. Tensors are Relax expressions, so are results."""

    def __init__(self, emitter: Emitter) -> None: ...

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        """x (..., k) times the transpose of weight (n, k), plus bias (n,) where it is not None."""

    def matmul(self, left: Any, right: Any) -> Any:
        """The product of two matrices."""

    def conv2d(self, x: Any, weight: Any, bias: Any, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Any:
        """The convolution of images (n, c, h, w)."""

    def max_pool2d(self, x: Any, window: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
        """The largest of each window of images (n, c, h, w); NaN where one is NaN."""

    def reshape(self, x: Any, shape: list[Any]) -> Any:
        """The same elements in another shape."""

    def transpose(self, x: Any) -> Any:
        """The transpose of a matrix."""

    def softmax(self, x: Any, dim: int) -> Any:
        """The softmax over one dimension."""

    def log_softmax(self, x: Any, dim: int) -> Any:
        """Its logarithm."""

    def unary(self, name: str, x: Any) -> Any:
        """``relu``, ``tanh``, ``sigmoid`` or ``exp`` of each element."""

    def binary(self, name: str, left: Any, right: Any) -> Any:
        """``add``, ``subtract``, ``multiply`` or ``divide`` with broadcasting."""


class RelaxOperators:
    """Operators of Relax, each bound to a variable."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        product = self.matmul(x, self.transpose(weight))
        return product if bias is None else self.binary("add", product, bias)

    def matmul(self, left: Any, right: Any) -> Any:
        return self._emit(relax.op.matmul(left, right))

    def conv2d(self, x: Any, weight: Any, bias: Any, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Any:
        sides = (*padding, *padding)
        product = self._emit(relax.op.nn.conv2d(x, weight, stride, sides, dilation, groups))
        if bias is None:
            return product
        return self.binary("add", product, self.reshape(bias, [1, bias.ty.shape.values[0], 1, 1]))

    def max_pool2d(self, x: Any, window: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
        return self._emit(relax.op.nn.max_pool2d(x, window, stride, (*padding, *padding), dilation))

    def reshape(self, x: Any, shape: list[Any]) -> Any:
        return self._emit(relax.op.reshape(x, relax.ShapeExpr(shape)))

    def transpose(self, x: Any) -> Any:
        return self._emit(relax.op.permute_dims(x, [1, 0]))

    def softmax(self, x: Any, dim: int) -> Any:
        return self._emit(relax.op.nn.softmax(x, dim))

    def log_softmax(self, x: Any, dim: int) -> Any:
        return self._emit(relax.op.nn.log_softmax(x, dim))

    def unary(self, name: str, x: Any) -> Any:
        operator = relax.op.nn.relu if name == "relu" else getattr(relax.op, name)
        return self._emit(operator(x))

    def binary(self, name: str, left: Any, right: Any) -> Any:
        return self._emit(getattr(relax.op, name)(left, right))

    def _emit(self, call: Any) -> Any:
        return self._emitter.emit(call)


class TensorExpressions:
    """TensorIR functions from tensor expressions, by `emit_te`, which makes the function and calls it."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        product = self._emit(_dense, x, weight, name="dense")
        return product if bias is None else self.binary("add", product, bias)

    def matmul(self, left: Any, right: Any) -> Any:
        return self._emit(topi.matmul, left, right, name="matmul")

    def conv2d(self, x: Any, weight: Any, bias: Any, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Any:
        def compute(data: Any, kernel: Any) -> Any:
            return topi.nn.conv(data, kernel, stride, (*padding, *padding), dilation, groups, "NCHW", "OIHW")

        def shifted(data: Any, shift: Any) -> Any:
            return te.compute(data.shape, lambda n, c, h, w: data(n, c, h, w) + shift(c), name="add")

        product = self._emit(compute, x, weight, name="conv2d")
        return product if bias is None else self._emit(shifted, product, bias, name="add_bias")

    def max_pool2d(self, x: Any, window: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
        def compute(data: Any) -> Any:
            return max_pool2d(data, window, stride, padding, dilation)

        return self._emit(compute, x, name="max_pool2d")

    def reshape(self, x: Any, shape: list[Any]) -> Any:
        return self._emit(topi.reshape, x, relax.ShapeExpr(shape), name="reshape")

    def transpose(self, x: Any) -> Any:
        return self._emit(topi.transpose, x, name="transpose")

    def softmax(self, x: Any, dim: int) -> Any:
        return self._emit(topi.nn.softmax, x, dim, name="softmax")

    def log_softmax(self, x: Any, dim: int) -> Any:
        return self._emit(topi.nn.log_softmax, x, dim, name="log_softmax")

    def unary(self, name: str, x: Any) -> Any:
        return self._emit(_relu if name == "relu" else getattr(topi, name), x, name=name)

    def binary(self, name: str, left: Any, right: Any) -> Any:
        return self._emit(getattr(topi, name), left, right, name=name)

    def _emit(self, compute: Any, *arguments: Any, name: str) -> Any:
        return self._emitter.emit_te(compute, *arguments, name=name)


def _dense(x: Any, weight: Any) -> Any:
    """The lecture's matmul, with the weight as `torch.nn.Linear` keeps it: (n, k), read by rows."""
    k = te.reduce_axis((0, weight.shape[1]), name="k")
    shape = [*x.shape[:-1], weight.shape[0]]
    return te.compute(shape, lambda *i: te.sum(x(*i[:-1], k) * weight[i[-1], k], axis=k), name="dense")


def _relu(x: Any) -> Any:
    # Not a maximum: that would turn NaN into 0, where PyTorch keeps NaN.
    zero = tirx.const(0, x.dtype)
    return te.compute(x.shape, lambda *i: tirx.Select(x(*i) < zero, zero, x(*i)), name="relu")


OPERATOR_SETS: dict[str, type[OperatorSet]] = {"relax": RelaxOperators, "tensorir": TensorExpressions}
