"""LSTM, GRU and plain recurrent layers, each as one matrix product over all steps and one kernel that runs the steps.

TVM's importer unrolls them: 59 steps of two layers become thousands of operators, on which FoldConstant takes minutes;
stacked and bidirectional variants drop layers, and projections and missing biases are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from service.compiler.corrections.creation import is_empty
from service.compiler.pointwise import dtype_of, extern
from service.compiler.promotion import widened
from service.compiler.translation import Arguments, Converter, Translation, dtype_name
from service.errors import ImportFailed


def _sigmoid(x: Any) -> Any:
    one = tirx.const(1, dtype_of(x))
    return one / (one + tirx.exp(x * tirx.const(-1, dtype_of(x))))


def _tanh(x: Any) -> Any:
    return extern("tanh", x)


@dataclass(frozen=True)
class Cell:
    """A kind of layer: how many gates, whether it keeps a cell state, and what one element does in one step.

    `update(gates, recurrent, hidden, cell)` gives the new hidden and cell value of one element. `gates` are the sums
    of both products but where `split`, as a GRU needs it, which gets the recurrent product by itself.
    """

    gates: int
    has_cell: bool
    split: bool
    update: Callable[[list[Any], list[Any], Any, Any], tuple[Any, Any]]


def _lstm_update(gates: list[Any], recurrent: list[Any], hidden: Any, cell: Any) -> tuple[Any, Any]:
    kept = _sigmoid(gates[1]) * cell + _sigmoid(gates[0]) * _tanh(gates[2])
    return _sigmoid(gates[3]) * _tanh(kept), kept


def _gru_update(gates: list[Any], recurrent: list[Any], hidden: Any, cell: Any) -> tuple[Any, Any]:
    reset, keep = (_sigmoid(gates[k] + recurrent[k]) for k in (0, 1))
    new = _tanh(gates[2] + reset * recurrent[2])
    return (hidden + new * tirx.const(-1, dtype_of(new))) * keep + new, cell


def _relu(x: Any) -> Any:
    zero = tirx.const(0, dtype_of(x))
    return tirx.Select(x < zero, zero, x)


LSTM = Cell(4, True, False, _lstm_update)
GRU = Cell(3, False, True, _gru_update)
TANH = Cell(1, False, False, lambda gates, recurrent, hidden, cell: (_tanh(gates[0]), cell))
RELU = Cell(1, False, False, lambda gates, recurrent, hidden, cell: (_relu(gates[0]), cell))


def _kernel(kind: Cell, reverse: bool, projected: bool) -> Callable[[Any, Any], Any]:
    """Over gates (steps, batch, gates * width), recurrent weight (out, gates * width), bias (gates * width,) of the
    recurrent product, first hidden (batch, out) and cell (batch, width), and the projection (width, out): writes the
    outputs (steps, batch, out), the last hidden and cell, and a scratch row (batch, gates * width + width).
    """

    def kernel(ins: Any, outs: Any) -> Any:
        steps, batch, total = ins[0].shape
        width, out = tirx.floordiv(total, kind.gates), ins[1].shape[0]
        row = total + width
        ib = IRBuilder()
        with ib, T.seq_scope():
            inputs, weight, bias, first, first_cell = (T.buffer_proxy(each) for each in ins[:5])
            projection = T.buffer_proxy(ins[5]) if projected else None
            result, hidden, cell, scratch = (T.buffer_proxy(each) for each in outs)
            with T.parallel(0, batch) as b:
                with T.serial(0, out) as k:
                    hidden[b * out + k] = first[b * out + k]
                with T.serial(0, width) as k:
                    cell[b * width + k] = first_cell[b * width + k]
                with T.serial(0, steps) as s:
                    step = steps - 1 - s if reverse else s
                    here = (step * batch + b) * total
                    with T.serial(0, total) as j:
                        scratch[b * row + j] = bias[j] if kind.split else bias[j] + inputs[here + j]
                    with T.serial(0, out) as k, T.serial(0, total) as j:
                        scratch[b * row + j] = scratch[b * row + j] + hidden[b * out + k] * weight[k * total + j]
                    with T.serial(0, width) as j:
                        recurrent = [scratch[b * row + gate * width + j] for gate in range(kind.gates)]
                        gates = [inputs[here + gate * width + j] for gate in range(kind.gates)]
                        before = cell[b * width + j] if projected else hidden[b * out + j]
                        new, kept = kind.update(
                            gates if kind.split else recurrent, recurrent, before, cell[b * width + j]
                        )
                        scratch[b * row + total + j] = new
                        if kind.has_cell:
                            cell[b * width + j] = kept
                    if projection is None:
                        with T.serial(0, width) as j:
                            hidden[b * out + j] = scratch[b * row + total + j]
                    else:
                        with T.serial(0, out) as k:
                            hidden[b * out + k] = tirx.const(0, dtype_of(hidden[0]))
                        with T.serial(0, width) as j, T.serial(0, out) as k:
                            product = scratch[b * row + total + j] * projection[j * out + k]
                            hidden[b * out + k] = hidden[b * out + k] + product
                    with T.serial(0, out) as k:
                        result[(step * batch + b) * out + k] = hidden[b * out + k]
        return ib.get()

    return kernel


def _direction(
    t: Translation, kind: Cell, x: Any, weights: list[Any], hidden: Any, cell: Any, reverse: bool, dtype: torch.dtype
) -> tuple[Any, Any, Any]:
    """Outputs (steps, batch, out) and last states (batch, …) of one direction of one layer."""
    of_input, of_hidden, *rest = weights
    biases, projection = (rest[:2], rest[2:]) if len(rest) >= 2 else ([], rest)
    total = of_input.meta["val"].shape[0]
    transposed = [t.emit(relax.op.permute_dims(t.tensor(each, dtype), [1, 0])) for each in (of_input, of_hidden)]
    gates = t.emit(relax.op.matmul(x, transposed[0]))
    zeros = t.constant(torch.zeros(total, dtype=dtype))
    if biases:
        gates = t.emit(relax.op.add(gates, t.tensor(biases[0], dtype)))
    bias = t.tensor(biases[1], dtype) if biases else zeros
    extra = [t.emit(relax.op.permute_dims(t.tensor(each, dtype), [1, 0])) for each in projection]
    kernel = _kernel(kind, reverse, bool(extra))

    def compute(*tensors: Any) -> Any:
        steps, batch, size = tensors[0].shape
        out, width = tensors[1].shape[0], tensors[4].shape[1]
        shapes = [[steps, batch, out], [batch, out], [batch, width], [batch, size + width]]
        return te.extern(shapes, list(tensors), kernel, dtype=[dtype_name(dtype)] * 4, name="recurrence")

    results = t.te(compute, gates, transposed[1], bias, hidden, cell, *extra, name="recurrence")
    return t.item(results, 0), t.item(results, 1), t.item(results, 2)


def _state(t: Translation, states: Any, index: int) -> Any:
    """(layers * directions, batch, …) at `index`."""
    chosen = t.emit(relax.op.strided_slice(states, [0], [index], [index + 1], assume_inbound=True))
    return t.emit(relax.op.squeeze(chosen, [0]))


def _layers(kind: Cell) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        node = a.values.get("input")
        if node is None or "data" in a.values or a.result[0].ndim != 3:
            raise ImportFailed("recurrent layers are compiled for padded batches (steps, batch, features).", step=0)
        if a.train and a.dropout > 0 and a.num_layers > 1:
            raise ImportFailed("dropout between recurrent layers draws random numbers. Call `model.eval()`.", step=0)
        if is_empty(a.result[0]) or is_empty(node.meta["val"]):
            raise ImportFailed("recurrent layers are not compiled for empty batches.", step=0)
        return _stack(t, a, kind, node)

    return convert


def _stack(t: Translation, a: Arguments, kind: Cell, node: Any) -> Any:
    dtype = widened(a.result[0].dtype)
    x = t.tensor(node, dtype)
    if a.batch_first:
        x = t.emit(relax.op.permute_dims(x, [1, 0, 2]))
    starts = list(a.hx) if isinstance(a.hx, list | tuple) else [a.hx]
    hiddens = t.tensor(starts[0], dtype)
    cells = t.tensor(starts[1], dtype) if kind.has_cell else hiddens
    directions = 2 if a.bidirectional else 1
    each = len(a.params) // (a.num_layers * directions)
    last_hidden, last_cell = [], []
    for layer in range(a.num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = list(a.params[index * each : (index + 1) * each])
            first, first_cell = _state(t, hiddens, index), _state(t, cells, index)
            output, hidden, cell = _direction(t, kind, x, weights, first, first_cell, direction == 1, dtype)
            outputs.append(output)
            last_hidden.append(hidden)
            last_cell.append(cell)
        x = outputs[0] if directions == 1 else t.emit(relax.op.concat(outputs, 2))
    if a.batch_first:
        x = t.emit(relax.op.permute_dims(x, [1, 0, 2]))
    results = [x, _stacked(t, last_hidden)] + ([_stacked(t, last_cell)] if kind.has_cell else [])
    return [t.cast(each, dtype, value.dtype) for each, value in zip(results, a.result, strict=True)]


def _stacked(t: Translation, states: list[Any]) -> Any:
    expanded = [t.emit(relax.op.expand_dims(state, 0)) for state in states]
    return expanded[0] if len(expanded) == 1 else t.emit(relax.op.concat(expanded, 0))


CONVERTERS: dict[str, Converter] = {
    "aten.lstm.input": _layers(LSTM),
    "aten.gru.input": _layers(GRU),
    "aten.rnn_tanh.input": _layers(TANH),
    "aten.rnn_relu.input": _layers(RELU),
}

KEPT = tuple(CONVERTERS)
