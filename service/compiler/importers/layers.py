"""PyTorch's layers made from what a reader found of them: the class from an allowlist, plain attributes, tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from service.compiler.importers.stored_tensors import tensor_of
from service.compiler.readers.fx import Layer, NamedValue
from service.compiler.readers.fx_code import FxProgram
from service.compiler.readers.fx_names import LAYERS
from service.compiler.readers.torch_file import StoredTensor
from service.errors import ImportFailed


class LayerBuilder:
    """Builds the layers of one file. Tensors and layers that are used twice are made once."""

    def __init__(
        self,
        storages: Mapping[str, bytes],
        named_value: Callable[[str], Any],
        graph: Callable[[FxProgram], nn.Module] | None = None,
    ) -> None:
        """`graph` makes an empty module that follows a program, for graph modules inside of another."""
        self._storages = storages
        self._named_value = named_value
        self._graph = graph or (lambda _: nn.Module())
        self._memory: dict[str, torch.Tensor] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._layers: dict[int, nn.Module] = {}

    def fill(self, module: nn.Module, layer: Layer) -> None:
        """Gives an initialised module the attributes, weights and children of `layer`. Raises ImportFailed."""
        for name, value in layer.attributes.items():
            # A layer's method must not be replaced by a value of the same name.
            if name != "training" and (callable(getattr(type(module), name, None)) or hasattr(nn.Module, name)):
                raise ImportFailed(f"A {layer.kind} has an attribute {name!r} that hides a method.", step=0)
            module.__dict__[name] = self._value(value)
        for name, stored in layer.parameters.items():
            module.register_parameter(name, None if stored is None else self._parameter(stored))
        for name, stored in layer.buffers.items():
            module.register_buffer(
                name, None if stored is None else self._tensor(stored), persistent=name not in layer.transient
            )
        for name, child in layer.children.items():
            module._modules[name] = None if child is None else self._layer(child)
        if isinstance(module, nn.RNNBase):
            # Its list of weights is made anew, of the parameters that it has now.
            module._init_flat_weights()

    def _layer(self, layer: Layer) -> nn.Module:
        if id(layer) not in self._layers:
            if layer.kind not in LAYERS:
                raise ImportFailed(f"The model has a layer {layer.kind}, which relaxd does not take.", step=0)
            cls = _class(layer.kind)
            module: nn.Module = cls.__new__(cls)
            nn.Module.__init__(module)
            if layer.program is not None:
                module = self._graph(layer.program)
            self._layers[id(layer)] = module
            self.fill(module, layer)
        return self._layers[id(layer)]

    def _value(self, value: Any) -> Any:
        if isinstance(value, StoredTensor):
            return self._tensor(value)
        if isinstance(value, NamedValue):
            return self._named_value(value.name)
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(part) for part in value)
        if isinstance(value, dict):
            return {key: self._value(part) for key, part in value.items()}
        return value

    def _tensor(self, stored: StoredTensor) -> torch.Tensor:
        if id(stored) not in self._tensors:
            self._tensors[id(stored)] = tensor_of(stored, self._storages, self._memory)
        return self._tensors[id(stored)]

    def _parameter(self, stored: StoredTensor) -> nn.Parameter:
        tensor = self._tensor(stored)
        if not isinstance(tensor, nn.Parameter):
            tensor = self._tensors[id(stored)] = nn.Parameter(tensor.detach(), requires_grad=tensor.is_floating_point())
        return tensor


def _class(kind: str) -> Any:
    return getattr(nn, kind, None) or getattr(nn.modules.linear, kind)
