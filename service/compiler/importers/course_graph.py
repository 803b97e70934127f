"""An FX file as the torch.fx graph that it was made from, with its layers as they are called."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from service.compiler.importers.fx import Rebuilt, named_value
from service.compiler.importers.layers import LayerBuilder
from service.compiler.readers.fx import FxFile
from service.compiler.readers.fx_code import Attribute, Const, Expression, Group, Invoke, Named, Property, Ref


def graph_module(file: FxFile) -> torch.fx.GraphModule:
    """The file's steps as nodes: call_module, call_function, call_method and get_attr. Raises ImportFailed."""
    layers = Rebuilt(file.program)
    LayerBuilder(file.storages, named_value, Rebuilt.called).fill(layers, file.root)
    maker = _GraphMaker()
    for name, optional, _ in file.program.inputs:
        if not optional:
            maker.values[name] = maker.graph.placeholder(name)
    for index, step in enumerate(file.program.steps):
        value = maker.value(step.value, step.name)
        if isinstance(value, torch.fx.Node):
            line = file.program.lines[step.line - 1].strip() if 0 < step.line <= len(file.program.lines) else ""
            value.meta["custom"] = {"source_line": f"forward:{step.line}: {line}"[:300]}
        maker.values[step.name or f"unused {index}"] = value
    maker.graph.output(maker.value(file.program.result, None))
    return torch.fx.GraphModule(layers, maker.graph)


class _GraphMaker:
    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.values: dict[str, Any] = {}

    def value(self, expression: Expression, name: str | None) -> Any:
        """The node or plain value of an expression; a node gets `name` where there is one."""
        make = self.graph.create_node
        match expression:
            case Ref(known):
                found = self.values.get(known)
            case Const(value):
                found = value
            case Named(known):
                found = named_value(known)
            case Attribute(path):
                found = make("get_attr", ".".join(path), name=name)
            case Property(target, known):
                found = make("call_function", getattr, (self.value(target, None), known), name=name)
            case Group(kind, parts):
                found = _grouped(kind, [self.value(part, None) for part in parts])
            case _:
                found = self._call(expression, name)
        return found

    def _call(self, call: Invoke, name: str | None) -> torch.fx.Node:
        arguments = tuple(self.value(part, None) for part in call.arguments)
        keywords = {key: self.value(part, None) for key, part in call.keywords}
        if call.name is None:
            return self.graph.create_node("call_module", ".".join(call.target.path), arguments, keywords, name)
        if call.target is None:
            return self.graph.create_node("call_function", named_value(call.name), arguments, keywords, name)
        target = self.value(call.target, None)
        return self.graph.create_node("call_method", call.name, (target, *arguments), keywords, name)


def _grouped(kind: str, parts: list[Any]) -> Any:
    if kind == "dict":
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if kind == "slice":
        return slice(*parts)
    return parts if kind == "list" else tuple(parts)
