"""A frozen TorchScript graph, run node by node in Python: so that torch.export sees sizes as symbols and not as the
numbers that TorchScript's own interpreter would make of them, and so that every error has its node's source line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from service.compiler.importers.script_builtins import BUILTINS, is_number
from service.compiler.readers.operator_names import ATEN_NAMES
from service.compiler.readers.operator_uses import Use, refusal
from service.errors import ImportFailed

# A loop of more steps is no model but a way to keep a worker busy.
MAX_STEPS = 200_000

Place = Callable[[Any], str]
Values = dict[str, Any]


class ScriptInterpreter:
    """Runs the graph of one frozen module. `place` gives the source line of a node, which its errors name."""

    def __init__(self, module: Any, place: Place) -> None:
        self._module = module
        self._graph = module.graph
        self._place = place
        self._steps = 0
        self.running: Any = None

    def run(self, arguments: dict[str, Any]) -> Any:
        """The graph's result. `arguments` are its inputs by name, all but the module itself.

        Raises ImportFailed where the graph raises an exception or has an operator that is not known.
        """
        self._steps = 0
        module, *inputs = self._graph.inputs()
        values: Values = {module.debugName(): self._module}
        for value in inputs:
            values[value.debugName()] = arguments.get(value.debugName().partition(".")[0])
        results = self._block(self._graph, values)
        return results[0] if len(results) == 1 else tuple(results)

    def _block(self, block: Any, values: Values) -> list[Any]:
        for node in block.nodes():
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise ImportFailed(f"The model runs more than {MAX_STEPS} steps ({self._place(node)}).", step=0)
            self.running = node
            outputs = self._node(node, values)
            for value, result in zip(node.outputs(), outputs, strict=True):
                values[value.debugName()] = result
        return [values[value.debugName()] for value in block.outputs()]

    def _node(self, node: Any, values: Values) -> list[Any]:
        kind = node.kind()
        if kind == "prim::Constant":
            return [node.output().toIValue()]
        if kind == "prim::If":
            return self._branch(node, values)
        if kind == "prim::Loop":
            return self._loop(node, values)
        inputs = [values[value.debugName()] for value in node.inputs()]
        if kind in _STRUCTURE:
            return _STRUCTURE[kind](node, inputs)
        if kind == "prim::RaiseException":
            raise ImportFailed(f"The model refuses these inputs: {inputs[0]} ({self._place(node)}).", step=0)
        with self._noted(node):
            return _outputs(node, self._call(node, kind, inputs))

    def _branch(self, node: Any, values: Values) -> list[Any]:
        condition = values[next(iter(node.inputs())).debugName()]
        taken, other = node.blocks()
        return self._block(taken if condition else other, values)

    def _loop(self, node: Any, values: Values) -> list[Any]:
        limit, condition, *carried = (values[value.debugName()] for value in node.inputs())
        body = next(iter(node.blocks()))
        index = 0
        while condition and index < limit:
            for value, current in zip(body.inputs(), [index, *carried], strict=True):
                values[value.debugName()] = current
            condition, *carried = self._block(body, values)
            index += 1
        return carried

    def _call(self, node: Any, kind: str, inputs: list[Any]) -> Any:
        inputs = _as_numbers(inputs)
        if kind in BUILTINS and not any(isinstance(value, torch.Tensor) for value in inputs):
            return BUILTINS[kind](*inputs)
        if kind in _OF_TENSORS:
            return _OF_TENSORS[kind](*inputs)
        namespace, _, name = kind.partition("::")
        if namespace != "aten" or name not in ATEN_NAMES:
            raise refusal([Use(kind.replace("::", "."), None, self._place(node))])
        schema = torch._C.parse_schema(node.schema())
        operator = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
        positional = [argument for argument in schema.arguments if not argument.kwarg_only]
        keywords = [argument.name for argument in schema.arguments if argument.kwarg_only]
        named = dict(zip(keywords, inputs[len(positional) :], strict=False))
        given = [_as_declared(value, each) for value, each in zip(inputs, positional, strict=False)]
        return operator(*given, **named)

    @contextlib.contextmanager
    def _noted(self, node: Any) -> Iterator[None]:
        """Marks what is exported meanwhile with the node's source line."""
        with torch.fx.traceback.annotate({"source_line": self._place(node)}):
            yield


def _as_numbers(inputs: list[Any]) -> list[Any]:
    """Inputs of arithmetic on sizes, for which tracing makes a tensor of every whole number."""
    whole = [is_number(value) or _is_whole(value) or value is None or isinstance(value, str) for value in inputs]
    if not all(whole) or not any(is_number(value) for value in inputs):
        return inputs
    return [value.item() if isinstance(value, torch.Tensor) else value for value in inputs]


def _as_declared(value: Any, argument: Any) -> Any:
    """A size that was a tensor in the trace, as one, where the operator takes nothing else."""
    if str(argument.type) != "Tensor" or not is_number(value):
        return value
    dtype = torch.int64 if isinstance(value, int | torch.SymInt) and not isinstance(value, bool) else None
    return torch.scalar_tensor(value, dtype=dtype)


def _is_whole(value: Any) -> bool:
    # Of an export's inputs only stand-ins are seen, so a plain tensor is a constant of the graph.
    plain = type(value) is torch.Tensor and value.dim() == 0
    return plain and not value.is_floating_point() and not value.is_complex()


def _outputs(node: Any, result: Any) -> list[Any]:
    count = node.outputsSize()
    if count == 1:
        return [result]
    return list(result) if count else []


def _pairs(_: Any, inputs: list[Any]) -> list[Any]:
    return [dict(zip(inputs[::2], inputs[1::2], strict=True))]


def _set_attribute(node: Any, inputs: list[Any]) -> list[Any]:
    setattr(inputs[0], node.s("name"), inputs[1])
    return []


_STRUCTURE: dict[str, Callable[[Any, list[Any]], list[Any]]] = {
    "prim::ListConstruct": lambda _, inputs: [list(inputs)],
    "prim::TupleConstruct": lambda _, inputs: [tuple(inputs)],
    "prim::DictConstruct": _pairs,
    "prim::ListUnpack": lambda _, inputs: list(inputs[0]),
    "prim::TupleUnpack": lambda _, inputs: list(inputs[0]),
    "prim::TupleIndex": lambda _, inputs: [inputs[0][inputs[1]]],
    "prim::Uninitialized": lambda *_: [None],
    "prim::unchecked_cast": lambda _, inputs: [inputs[0]],
    "prim::unchecked_unwrap_optional": lambda _, inputs: [inputs[0]],
    # An object of a class of the archive that lives within one call, such as torch.no_grad's.
    "prim::CreateObject": lambda *_: [SimpleNamespace()],
    "prim::GetAttr": lambda node, inputs: [getattr(inputs[0], node.s("name"))],
    "prim::SetAttr": _set_attribute,
}


def _number(convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """A tensor's value as a number; sizes that became tensors for a moment are numbers all along."""
    return lambda value, *_: value if is_number(value) else convert(value.item())


_OF_TENSORS: dict[str, Callable[..., Any]] = {
    "aten::size": lambda x, axis=None: list(x.shape) if axis is None else x.shape[axis],
    "aten::dim": lambda x: x.dim(),
    "aten::ndimension": lambda x: x.dim(),
    "aten::len": lambda x: x.shape[0],
    "aten::numel": lambda x: x.numel(),
    "aten::stride": lambda x, axis=None: list(x.stride()) if axis is None else x.stride(axis),
    "aten::is_floating_point": lambda x: x.is_floating_point(),
    "aten::is_complex": lambda x: x.is_complex(),
    "aten::is_contiguous": lambda x, *_: x.is_contiguous(),
    "aten::__is__": lambda left, right: left is right,
    "aten::__isnot__": lambda left, right: left is not right,
    "aten::Bool": _number(bool),
    "aten::Int": _number(int),
    "aten::Float": _number(float),
    "aten::IntImplicit": _number(int),
    "aten::FloatImplicit": _number(float),
    "aten::ScalarImplicit": _number(lambda value: value),
    "aten::item": _number(lambda value: value),
    "aten::cpu": lambda x: x,
    "aten::append": lambda values, value: values.append(value) or values,
    "aten::insert": lambda values, index, value: values.insert(index, value) or values,
    "aten::extend": lambda values, more: values.extend(more),
    "aten::_set_item": lambda values, index, value: values.__setitem__(index, value),
    "aten::__getitem__": lambda values, index: values[index],
    "aten::list": list,
    "aten::add": lambda left, right, alpha=1: _add(left, right, alpha),
    "aten::_unwrap_optional": lambda value: value,
    "prim::device": lambda x: x.device,
    "prim::dtype": lambda x: x.dtype,
    "prim::type": lambda device: device.type,
    "prim::layout": lambda x: x.layout,
    "prim::data": lambda x: x.detach(),
    "prim::is_cuda": lambda _: False,
    "prim::is_nested": lambda _: False,
    "prim::is_quantized": lambda _: False,
    "prim::is_sparse": lambda _: False,
    "prim::is_mkldnn": lambda _: False,
    "prim::is_meta": lambda _: False,
    # With these PyTorch takes its general path and not the fused one, which has no decomposition.
    "prim::requires_grad": lambda _: True,
    "aten::is_grad_enabled": lambda: True,
    "prim::NumToTensor": lambda value: value,
}


def _add(left: Any, right: Any, alpha: Any) -> Any:
    if isinstance(left, list):
        return left + right
    return torch.add(left, right, alpha=alpha)
