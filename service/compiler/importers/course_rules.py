"""The maps of the course translator: from functions, methods and layers of PyTorch to what the operator set gives.

A rule gets the translation, the arguments of the call (for a layer also the layer), and returns a Relax expression.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from tvm import relax, tirx
from tvm.ir import Constant


class Unsupported(Exception):
    """What a rule cannot translate, as the end of a sentence."""


Rule = Callable[..., Any]


def _linear(t: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return t.ops.linear(x, weight, bias)


def _pair(value: Any) -> tuple[int, int]:
    listed = list(value) if isinstance(value, Sequence) else [value]
    if not all(isinstance(each, int) for each in listed):
        raise Unsupported("a stride, padding or window is not a number")
    return (listed[0], listed[-1])


def _conv2d(
    t: Any, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    return t.ops.conv2d(x, weight, bias, _pair(stride), _pair(padding), _pair(dilation), groups)


def _convolution(
    t: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    _: Any,
    groups: int,
) -> Any:
    if transposed or len(x.ty.shape.values) != 4:
        raise Unsupported("its convolutions are of images, and not transposed")
    return _conv2d(t, x, weight, bias, stride, padding, dilation, groups)


def _max_pool2d(
    t: Any,
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if ceil_mode or return_indices:
        raise Unsupported("its max_pool2d has neither ceil_mode nor return_indices")
    return t.ops.max_pool2d(x, _pair(kernel_size), _pair(stride or kernel_size), _pair(padding), _pair(dilation))


def _flatten(t: Any, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    shape = list(x.ty.shape.values)
    start, end = start_dim % len(shape), end_dim % len(shape)
    size: Any = 1
    for dim in shape[start : end + 1]:
        size = size * dim
    return t.ops.reshape(x, [*shape[:start], size, *shape[end + 1 :]])


def _reshape(t: Any, x: Any, *sizes: Any) -> Any:
    listed = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else list(sizes)
    if not all(isinstance(size, int) for size in listed):
        raise Unsupported("a size is computed by the model")
    total: Any = 1
    for dim in x.ty.shape.values:
        total = total * dim
    for size in listed:
        if size != -1:
            total = tirx.floordiv(total, size)
    return t.ops.reshape(x, [total if size == -1 else size for size in listed])


def _unflatten(t: Any, x: Any, dim: int, sizes: Any) -> Any:
    shape = list(x.ty.shape.values)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise Unsupported("its unflatten takes sizes that are numbers")
    return t.ops.reshape(x, [*shape[: dim % len(shape)], *sizes, *shape[dim % len(shape) + 1 :]])


def _softmax(t: Any, x: Any, dim: int, *rest: Any, dtype: Any = None, **_: Any) -> Any:
    if dtype is not None or any(isinstance(each, torch.dtype) for each in rest):
        raise Unsupported("its softmax does not convert")
    return t.ops.softmax(x, dim)


def _log_softmax(t: Any, x: Any, dim: int, *rest: Any, dtype: Any = None, **_: Any) -> Any:
    if dtype is not None or any(isinstance(each, torch.dtype) for each in rest):
        raise Unsupported("its log_softmax does not convert")
    return t.ops.log_softmax(x, dim)


def _unary(name: str) -> Rule:
    def rule(t: Any, x: Any, inplace: bool = False) -> Any:  # noqa: ARG001 - nothing reads what was there before
        return t.ops.unary(name, x)

    return rule


def _binary(name: str) -> Rule:
    def rule(t: Any, left: Any, right: Any, *, alpha: Any = 1) -> Any:
        left, right = _number_of(left), _number_of(right)
        tensors = [each for each in (left, right) if isinstance(each, relax.Expr)]
        if not tensors or alpha != 1:
            raise Unsupported("its arithmetic is of tensors, without alpha")
        dtype = str(tensors[0].ty.dtype)
        if any(str(each.ty.dtype) != dtype for each in tensors):
            raise Unsupported("its operands are of one dtype")
        if len(tensors) == 1 and "float" not in dtype:
            raise Unsupported("its numbers go with floats")
        operands = [each if isinstance(each, relax.Expr) else relax.const(each, dtype) for each in (left, right)]
        return t.ops.binary(name, *operands)

    return rule


def _number_of(operand: Any) -> Any:
    """A number that the graph keeps as a tensor without dimensions, as TorchScript does, as the number."""
    if isinstance(operand, Constant) and not operand.ty.shape.values:
        return operand.value.numpy().item()
    return operand


def _identity(t: Any, x: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG001
    return x


def _dropout(t: Any, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ARG001
    if training:
        raise Unsupported("the model drops values at random; call model.eval() before it is saved")
    return x


def _matmul(t: Any, left: Any, right: Any) -> Any:
    return t.ops.matmul(left, right)


def _transpose(t: Any, x: Any) -> Any:
    return t.ops.transpose(x)


aten = torch.ops.aten

# call_function: by the function; call_method: by the name of the method of a tensor.
FUNCTIONS: dict[Any, Rule] = {
    **dict.fromkeys([F.linear, torch._C._nn.linear, aten.linear.default], _linear),
    **dict.fromkeys([torch.matmul, operator.matmul, torch.mm, aten.matmul.default, aten.mm.default, "matmul"], _matmul),
    **dict.fromkeys([torch.conv2d, F.conv2d, aten.conv2d.default], _conv2d),
    aten.convolution.default: _convolution,
    **dict.fromkeys([F.max_pool2d, torch.max_pool2d, aten.max_pool2d.default], _max_pool2d),
    **dict.fromkeys([torch.flatten, aten.flatten.using_ints, "flatten"], _flatten),
    **dict.fromkeys([torch.unflatten, aten.unflatten.int, "unflatten"], _unflatten),
    **dict.fromkeys([torch.reshape, aten.reshape.default, aten.view.default, "reshape", "view"], _reshape),
    **dict.fromkeys([torch.relu, F.relu, aten.relu.default, "relu"], _unary("relu")),
    **dict.fromkeys([torch.tanh, aten.tanh.default, "tanh"], _unary("tanh")),
    **dict.fromkeys([torch.sigmoid, aten.sigmoid.default, "sigmoid"], _unary("sigmoid")),
    **dict.fromkeys([torch.exp, aten.exp.default, "exp"], _unary("exp")),
    **dict.fromkeys([torch.add, operator.add, aten.add.Tensor, "add"], _binary("add")),
    **dict.fromkeys([torch.sub, operator.sub, aten.sub.Tensor, "sub"], _binary("subtract")),
    **dict.fromkeys([torch.mul, operator.mul, aten.mul.Tensor, "mul"], _binary("multiply")),
    **dict.fromkeys([torch.div, operator.truediv, aten.div.Tensor, "div"], _binary("divide")),
    **dict.fromkeys([torch.softmax, F.softmax, aten.softmax.int, "softmax"], _softmax),
    **dict.fromkeys([torch.log_softmax, F.log_softmax, aten.log_softmax.int, "log_softmax"], _log_softmax),
    **dict.fromkeys([torch.t, aten.t.default, "t"], _transpose),
    **dict.fromkeys([F.dropout, torch.dropout, aten.dropout.default], _dropout),
}


def _linear_layer(t: Any, layer: nn.Linear, x: Any) -> Any:
    bias = None if layer.bias is None else t.map_param(layer.bias)
    return _linear(t, x, t.map_param(layer.weight), bias)


def _conv2d_layer(t: Any, layer: nn.Conv2d, x: Any) -> Any:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise Unsupported("its Conv2d pads with zeros, by numbers")
    bias = None if layer.bias is None else t.map_param(layer.bias)
    weight = t.map_param(layer.weight)
    return _conv2d(t, x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)


def _max_pool2d_layer(t: Any, layer: nn.MaxPool2d, x: Any) -> Any:
    arguments = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, layer.return_indices)
    return _max_pool2d(t, x, *arguments)


def _dropout_layer(t: Any, layer: nn.Dropout, x: Any) -> Any:
    return _dropout(t, x, layer.p, layer.training)


# call_module: by the class of the layer.
MODULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear_layer,
    nn.Conv2d: _conv2d_layer,
    nn.MaxPool2d: _max_pool2d_layer,
    nn.ReLU: lambda t, _, x: t.ops.unary("relu", x),
    nn.Tanh: lambda t, _, x: t.ops.unary("tanh", x),
    nn.Sigmoid: lambda t, _, x: t.ops.unary("sigmoid", x),
    nn.Flatten: lambda t, layer, x: _flatten(t, x, layer.start_dim, layer.end_dim),
    nn.Unflatten: lambda t, layer, x: _unflatten(t, x, layer.dim, layer.unflattened_size),
    nn.Softmax: lambda t, layer, x: _softmax(t, x, layer.dim),
    nn.LogSoftmax: lambda t, layer, x: _log_softmax(t, x, layer.dim),
    nn.Identity: lambda t, _, x: _identity(t, x),
    nn.Dropout: _dropout_layer,
}
