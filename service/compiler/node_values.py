"""What PyTorch eager gives for every node of a model, to find the first binding that differs."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind, TensorArgument

from service.compiler.constants import array_of, tensor_of
from service.runtime.session import Array


class NodeValues:
    """A program in the operators that are converted, run by PyTorch node by node."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program

    def run(self, inputs: list[Array], wanted: set[str]) -> dict[str, Array]:
        """The values of the nodes of these names that are tensors. Raises what the model raises."""
        tensors = iter([tensor_of(value) for value in inputs])
        store = {**self._program.constants, **self._program.state_dict}
        arguments = []
        for spec in self._program.graph_signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT:
                arguments.append(store[spec.target])
            elif isinstance(spec.arg, TensorArgument):
                arguments.append(next(tensors))
            else:
                arguments.append(getattr(spec.arg, "value", None))
        recorder = _Recorder(self._program.graph_module, wanted)
        with torch.no_grad():
            recorder.run(*arguments)
        return recorder.values


class _Recorder(torch.fx.Interpreter):  # type: ignore[misc]
    def __init__(self, module: torch.fx.GraphModule, wanted: set[str]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self.values: dict[str, Array] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._wanted and isinstance(value, torch.Tensor):
            # At once: a node that follows may write into it.
            self.values[n.name] = array_of(value.clone())
        return value
