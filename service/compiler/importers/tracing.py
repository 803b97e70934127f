"""From a module with example inputs to an exported program, for the formats that carry no program themselves."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.exc
import torch.fx.traceback
from torch import nn

from service.compiler.foreign import boundary
from service.compiler.importers.declared_inputs import Arguments
from service.errors import ImportFailed
from service.nouns import CompileJob
from service.runtime.tvm_errors import readable_message

_DATA_DEPENDENT = re.compile(r"data.dependent|_local_scalar_dense|unbacked|GuardOnData", re.IGNORECASE)
_RAISED = (RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError, AssertionError)
_CONSTRAINT = re.compile(r"Constraints violated|specialized|You marked (\w+) as dynamic", re.IGNORECASE)


def export_module(
    module: nn.Module, arguments: Arguments, job: CompileJob, where: Callable[[Exception], str | None]
) -> torch.export.ExportedProgram:
    """The module as an exported program. `where` gives the source line of an error, if it can tell.

    Raises ImportFailed, which says what in the model or in the declared dimensions prevents it.
    """
    with boundary(ImportFailed, "PyTorch could not export the module", job.limits, step=0), torch.no_grad():
        try:
            # So that what an interpreter notes of its steps stays with their nodes. What export warns of (weights that
            # it takes as constants) is meant.
            with torch.fx.traceback.preserve_node_meta(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _export(module, arguments)
        except _RAISED as error:
            raise _explained(error, where(error), arguments) from error


def _export(module: nn.Module, arguments: Arguments) -> torch.export.ExportedProgram:
    tensors = tuple(arguments.tensors.values())
    if not any(arguments.dynamic.values()):
        return torch.export.export(module.eval(), tensors, strict=False)
    try:
        return torch.export.export(module.eval(), tensors, dynamic_shapes=arguments.dynamic, strict=False)
    except torch._dynamo.exc.UserError as error:
        # A range that PyTorch finds by itself leaves out the few sizes that the model cannot take.
        if "Not all values" not in str(error):
            raise
    found = {name: dict.fromkeys(dims, torch.export.Dim.DYNAMIC) for name, dims in arguments.dynamic.items()}
    return torch.export.export(module.eval(), tensors, dynamic_shapes=found, strict=False)


def _explained(error: Exception, place: str | None, arguments: Arguments) -> ImportFailed:
    message = str(error)
    at = f" ({place})" if place else ""
    if _CONSTRAINT.search(message) and any(arguments.dynamic.values()):
        symbols = sorted({str(dim.__name__) for dims in arguments.dynamic.values() for dim in dims.values()})
        return ImportFailed(
            f"A dimension that `inputs` declares as a name ({', '.join(symbols)}) has only one size in the model{at}. "
            f"Declare it as that number. PyTorch says: {_short(message)}",
            step=0,
            field="inputs",
            source_line=place,
        )
    if _DATA_DEPENDENT.search(message):
        return ImportFailed(
            f"The model branches on, or takes a size from, the values of a tensor{at}, which one compiled program "
            "cannot. Use torch.where or torch.cond, or compute the value before the model.",
            step=0,
            source_line=place,
        )
    hint = ""
    if any(arguments.dynamic.values()):
        hint = " A dimension that has one size only must be declared as that number."
    return ImportFailed(
        f"The model cannot be run with these inputs{at}: {readable_message(error)[:500]}.{hint}",
        step=0,
        source_line=place,
    )


def _short(message: str) -> str:
    lines: list[Any] = [line.strip() for line in message.splitlines() if line.strip()]
    return " ".join(lines[:3])[:400]
