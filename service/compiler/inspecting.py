"""What a model is and what of it cannot be compiled, without compiling it: the preflight."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from service.compiler import corrections
from service.compiler.importers import find_importer
from service.compiler.importers.program import decompose, signature_of, unsupported_sites
from service.compiler.readers.archive import ArchiveLimits
from service.compiler.readers.operator_uses import Use, unsupported_list
from service.compiler.readers.pt2 import operator_uses
from service.compiler.site import Site, operator_name
from service.errors import ImportFailed, JsonObject
from service.nouns import CompileJob, ModelFormat

STEP_OPERATORS = ("getitem",)


def inspect_model(job: CompileJob) -> JsonObject:
    """The model's format, Signature, parameters, operators by number of uses, and those that are not supported.

    A model whose operators PyTorch cannot even load is described by them alone. Raises DamagedModel, UnsafeModel,
    SignatureMismatch, ImportFailed.
    """
    try:
        program = find_importer(job.format).load_program(job)
    except ImportFailed as problem:
        if "unsupported" not in problem.extensions:
            raise
        return {
            "format": job.format.value,
            "signature": None,
            "parameters": None,
            "operators": _histogram_of_file(job),
            "unsupported": problem.extensions["unsupported"],
        }
    decomposed = decompose(program, job)
    uses = [Use(site.operator, site.module, site.source) for site in unsupported_sites(decomposed)]
    return {
        "format": job.format.value,
        "signature": signature_of(program, job).to_json(),
        "parameters": _parameters(program),
        "operators": _histogram(decomposed),
        "unsupported": unsupported_list(uses) + _changes(decomposed),
    }


def supported_operators() -> list[str]:
    """The names of all operators that are compiled, sorted: those with a converter and those that become such."""
    return sorted(set(corrections.converters()) | set(corrections.decompositions()))


def decomposable_operators() -> list[str]:
    """The names of further operators, sorted: PyTorch writes them with the supported ones, or with others."""
    table = torch.export.default_decompositions()
    names = {str(operator) for operator in table if str(operator).startswith("aten.")}
    return sorted(name for name in names - set(supported_operators()) if not name.endswith("out"))


def _changes(program: torch.export.ExportedProgram) -> list[JsonObject]:
    """Buffers and inputs that the model changes, which a compiled library cannot, in the form of `unsupported_list`."""
    nodes = {node.name: node for node in program.graph.nodes}
    found = []
    for kind, mutated in (
        ("buffer", program.graph_signature.buffers_to_mutate),
        ("input", program.graph_signature.user_inputs_to_mutate),
    ):
        for result, name in mutated.items():
            site = Site.of(nodes[result])
            found.append(
                {
                    "operator": f"change of the {kind} {name!r}",
                    "count": 1,
                    "module_path": site.module,
                    "source_line": site.source,
                    "hint": "A library keeps no state: call model.eval(), or take it as an input and return it.",
                }
            )
    return found


def _histogram_of_file(job: CompileJob) -> list[JsonObject]:
    """The operators of a file that PyTorch cannot load, by number of uses; empty where the format does not tell."""
    if job.format is not ModelFormat.EXPORTED_PROGRAM:
        return []
    uses = operator_uses(Path(job.model_path), ArchiveLimits.of(job.limits))
    counts = Counter(use.operator.removeprefix("torch.ops.") for use in uses)
    return [{"name": name, "count": count} for name, count in counts.most_common()]


def _parameters(program: torch.export.ExportedProgram) -> JsonObject:
    """Number of values and bytes of all weights; what is used twice counts once."""
    tensors = {
        (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape)): tensor
        for tensor in (*program.state_dict.values(), *program.constants.values())
        if isinstance(tensor, torch.Tensor)
    }
    return {
        "count": sum(tensor.numel() for tensor in tensors.values()),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
    }


def _histogram(program: torch.export.ExportedProgram) -> list[JsonObject]:
    counts: Counter[str] = Counter()
    for module in program.graph_module.modules():
        graph: Any = getattr(module, "graph", None)
        for node in () if graph is None else graph.nodes:
            if node.op == "call_function" and operator_name(node.target) not in STEP_OPERATORS:
                counts[operator_name(node.target)] += 1
    return [{"name": name, "count": count} for name, count in counts.most_common()]
