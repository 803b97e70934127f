"""TorchScript files: gated, loaded, frozen, and exported by tracing the TorchScript module as a whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel
from service.compiler.importers.declared_inputs import (
    Arguments,
    Parameter,
    declared_arguments,
    declared_names,
    described,
)
from service.compiler.importers.program import import_program
from service.compiler.importers.script_constructs import find_constructs, place_of, refuse_constructs
from service.compiler.importers.script_interpreter import ScriptInterpreter
from service.compiler.importers.tracing import export_module
from service.compiler.readers.archive import ArchiveLimits
from service.compiler.readers.torchscript import ScriptFile, rewrite_torchscript
from service.errors import DamagedModel, ImportFailed
from service.nouns import CompileJob, TensorSpec


def import_model(job: CompileJob) -> ImportedModel:
    """Implements `Importer.import_model`."""
    return import_program(load_program(job), job)


def load_program(job: CompileJob) -> torch.export.ExportedProgram:
    """Implements `Importer.load_program`. torch reads a file that was written anew, never the uploaded one."""
    clean = Path(job.work_dir) / "model.pt"
    file = rewrite_torchscript(Path(job.model_path), clean, ArchiveLimits.of(job.limits))
    with boundary(DamagedModel, "PyTorch cannot load the TorchScript file", job.limits), clean.open("rb") as opened:
        script = torch.jit.load(opened, map_location="cpu").eval()
    parameters = _parameters(script)
    # What it does is looked at before its inputs are asked for: nobody should declare those of a module that is
    # refused anyway.
    with boundary(ImportFailed, "PyTorch cannot freeze the TorchScript module", job.limits, step=0):
        # Frozen weights that want gradients would be warned about in each export.
        for weight in script.parameters():
            weight.requires_grad_(False)
        frozen = torch.jit.freeze(script)
        left_out = {each.name for each in parameters if each.optional} - declared_names(job)
        constructs = find_constructs(frozen.graph, file.sources, frozenset(left_out))
    refuse_constructs(constructs)
    _refuse_numbers(parameters)
    arguments = declared_arguments(job, parameters, _known(file, parameters))
    interpreter = ScriptInterpreter(frozen, lambda node: place_of(node, file.sources))
    module = Traced(interpreter, list(arguments.tensors), _defaults(script))
    program = export_module(module, arguments, job, lambda _: place_of(interpreter.running, file.sources))
    _rename_convolutions(program)
    drawn = "" if job.inputs_path is not None else " on inputs that relaxd has drawn; send an .npz in the part `inputs`"
    with boundary(ImportFailed, f"The TorchScript module cannot be run{drawn}", job.limits, step=0):
        nothing = dict.fromkeys((each.name for each in parameters if each.optional), None)
        _check(program, frozen, arguments, {**nothing, **_defaults(script)})
    return program


class Traced(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """A TorchScript graph behind a forward with the names of the inputs that are given."""

    forward: Callable[..., Any]

    def __init__(self, interpreter: ScriptInterpreter, given: list[str], defaults: dict[str, Any]) -> None:
        super().__init__()

        def forward(*args: Any, **kwargs: Any) -> Any:
            return interpreter.run({**defaults, **dict(zip(given, args, strict=False)), **kwargs})

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in given]
        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        # As an attribute, since torch.export reads the names of the inputs from the forward's signature.
        self.__dict__["forward"] = forward


def _check(program: torch.export.ExportedProgram, frozen: Any, arguments: Arguments, left_out: dict[str, Any]) -> None:
    """Raises ImportFailed unless the program gives what TorchScript itself gives of the example inputs.

    `left_out` are the values of the inputs that the user does not give.
    """
    if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in program.graph.nodes):
        return  # no two runs agree, and the import refuses it with the operators' names
    with torch.no_grad():
        given_inputs = {name: tensor.clone() for name, tensor in arguments.tensors.items()}
        expected = pytree.tree_leaves(frozen(**{**left_out, **given_inputs}))
        given = pytree.tree_leaves(program.module()(*(tensor.clone() for tensor in arguments.tensors.values())))
    pairs = list(zip(expected, given, strict=False))
    if len(expected) != len(given) or not all(_agree(left, right) for left, right in pairs):
        raise ImportFailed(
            "The exported program and the TorchScript module do not agree on the example inputs. This is a fault of "
            "relaxd: please report the model, and make a .pt2 of the original module meanwhile.",
            step=0,
        )


def _agree(left: Any, right: Any) -> bool:
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return bool(left == right)
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    close = 1e-2 if left.dtype in (torch.float16, torch.bfloat16) else 1e-4
    return bool(torch.allclose(left.double(), right.double(), rtol=close, atol=close, equal_nan=True))


def _defaults(script: Any) -> dict[str, Any]:
    arguments = script._c._get_method("forward").schema.arguments[1:]
    return {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}


def _parameters(script: Any) -> list[Parameter]:
    if not hasattr(script, "forward"):
        raise ImportFailed("The TorchScript file has no forward. Save a module that has one.", step=0)
    schema = script._c._get_method("forward").schema
    parameters = []
    for argument in schema.arguments[1:]:
        kind = str(argument.type)
        optional = argument.has_default_value() or kind.startswith("Optional")
        parameters.append(Parameter(argument.name, kind in ("Tensor", "Optional[Tensor]"), optional, kind))
    return parameters


def _refuse_numbers(parameters: list[Parameter]) -> None:
    for parameter in parameters:
        if not parameter.is_tensor and not parameter.optional:
            raise ImportFailed(
                f"The module's forward takes {described(parameters)}, and `{parameter.name}` is no tensor but a "
                f"{parameter.type}. Wrap the module in one of your own that fixes it, and export that.",
                step=0,
                input=parameter.name,
            )


def _known(file: ScriptFile, parameters: list[Parameter]) -> list[TensorSpec] | None:
    """The inputs as the module was traced with them, if it was and the file says so."""
    if file.traced is None or len(file.traced) > len(parameters):
        return None
    return [
        TensorSpec(parameter.name, traced.shape, traced.dtype)
        for parameter, traced in zip(parameters, file.traced, strict=False)
    ]


def _rename_convolutions(program: torch.export.ExportedProgram) -> None:
    """`_convolution` is the same operator with four flags of backends more, which have no decomposition."""
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten._convolution.default):
        node.target = torch.ops.aten.convolution.default
        node.args = node.args[:9]
    program.graph_module.recompile()
