"""FX graph modules: read without unpickling, rebuilt of PyTorch's own layers and functions, and exported."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel
from service.compiler.importers.declared_inputs import Parameter, declared_arguments
from service.compiler.importers.layers import LayerBuilder
from service.compiler.importers.program import import_program
from service.compiler.importers.python_sizes import check_sizes
from service.compiler.importers.tracing import export_module
from service.compiler.readers.archive import ArchiveLimits
from service.compiler.readers.fx import read_fx
from service.compiler.readers.fx_code import (
    Attribute,
    Const,
    Expression,
    FxProgram,
    Group,
    Invoke,
    Named,
    Property,
    Ref,
)
from service.compiler.readers.fx_names import CONSTANTS, FUNCTIONS
from service.compiler.readers.operator_uses import Use, refusal
from service.errors import DamagedModel, ImportFailed
from service.nouns import CompileJob

_MODULES = {"builtins": builtins, "operator": operator, "math": math, "torch": torch}


def import_model(job: CompileJob) -> ImportedModel:
    """Implements `Importer.import_model`."""
    return import_program(load_program(job), job)


def load_program(job: CompileJob) -> torch.export.ExportedProgram:
    """Implements `Importer.load_program`."""
    file = read_fx(Path(job.model_path), ArchiveLimits.of(job.limits))
    with boundary(DamagedModel, "The FX graph module cannot be rebuilt", job.limits):
        module = Rebuilt(file.program)
        LayerBuilder(file.storages, named_value, Rebuilt.called).fill(module, file.root)
    parameters = [Parameter(name, optional=optional) for name, optional, _ in file.program.inputs]
    arguments = declared_arguments(job, parameters)
    module.accept(list(arguments.tensors))
    return export_module(module, arguments, job, lambda _: module.line)


def named_value(name: str) -> Any:
    """The function or constant of the allowlist with that full name. Raises ImportFailed when PyTorch has none."""
    if name not in FUNCTIONS and name not in CONSTANTS:
        raise refusal([Use(name)])
    first, *rest = name.split(".")
    try:
        return functools.reduce(getattr, rest, _MODULES[first])
    except AttributeError as error:
        raise ImportFailed(f"PyTorch {torch.__version__} has no {name}.", step=0, operators=[name]) from error


class Rebuilt(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """A forward that follows the steps of a graph module, whose layers and weights it is given afterwards."""

    forward: Callable[..., Any]

    def __init__(self, program: FxProgram) -> None:
        super().__init__()
        self._program = program
        self._step = 0

    @classmethod
    def called(cls, program: FxProgram) -> Rebuilt:
        """One that another calls: it takes its inputs by position or by name."""
        module = cls(program)
        module.accept([name for name, _, _ in program.inputs])
        return module

    def accept(self, given: list[str]) -> None:
        """Makes the forward take the inputs of these names; the others keep their defaults."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._run({**dict(zip(given, args, strict=False)), **kwargs})

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in given]
        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self.__dict__["forward"] = forward

    @property
    def line(self) -> str | None:
        """The source line of the step that runs or failed."""
        steps, lines = self._program.steps, self._program.lines
        if not 0 <= self._step < len(steps) or not 0 < steps[self._step].line <= len(lines):
            return None
        number = steps[self._step].line
        return f"forward:{number}: {lines[number - 1].strip()}"[:300]

    def _run(self, given: dict[str, Any]) -> Any:
        program: FxProgram = self._program
        values: dict[str, Any] = {}
        for name, _, default in program.inputs:
            values[name] = given[name] if name in given else self._evaluate(default, values)
        for index, step in enumerate(program.steps):
            self._step = index
            with torch.fx.traceback.annotate({"source_line": self.line or ""}):
                result = self._evaluate(step.value, values)
            if step.name is not None:
                values[step.name] = result
        return self._evaluate(program.result, values)

    def _evaluate(self, expression: Expression, values: dict[str, Any]) -> Any:
        match expression:
            case Ref(name):
                found = values[name]
            case Const(value):
                found = value
            case Named(name):
                found = named_value(name)
            case Group(kind, parts):
                found = _grouped(kind, [self._evaluate(part, values) for part in parts])
            case Property(target, name):
                found = getattr(self._evaluate(target, values), name)
            case Attribute(path):
                found = self._tensor(path)
            case _:
                found = self._invoke(expression, values)
        return found

    def _invoke(self, expression: Invoke, values: dict[str, Any]) -> Any:
        arguments = [self._evaluate(part, values) for part in expression.arguments]
        keywords = {name: self._evaluate(part, values) for name, part in expression.keywords}
        if expression.name is None:
            return self._layer(expression.target.path)(*arguments, **keywords)
        if expression.target is None:
            check_sizes(expression.name, arguments)
            return named_value(expression.name)(*arguments, **keywords)
        target = self._evaluate(expression.target, values)
        if not isinstance(target, (torch.Tensor, torch.Size)):
            raise ImportFailed(
                f"The model calls {expression.name} of a {type(target).__name__}, not of a tensor ({self.line}).",
                step=0,
            )
        return getattr(target, expression.name)(*arguments, **keywords)

    def _layer(self, path: tuple[str, ...]) -> nn.Module:
        layer: Any = self
        for name in path:
            layer = layer._modules.get(name) if isinstance(layer, nn.Module) else None
        if layer is None or layer is self:
            raise DamagedModel(f"The forward calls a layer {'.'.join(path)!r} that the module does not have.")
        return layer

    def _tensor(self, path: tuple[str, ...]) -> Any:
        holder = self._layer(path[:-1]) if len(path) > 1 else self
        for values in (holder._parameters, holder._buffers, holder.__dict__):
            if path and path[-1] in values and isinstance(values[path[-1]], (torch.Tensor, int, float, bool, tuple)):
                return values[path[-1]]
        raise DamagedModel(f"The forward uses a tensor {'.'.join(path)!r} that the module does not have.")


def _grouped(kind: str, parts: list[Any]) -> Any:
    if kind == "dict":
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if kind == "slice":
        return slice(*parts)
    return parts if kind == "list" else tuple(parts)
