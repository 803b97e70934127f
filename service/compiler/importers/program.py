"""The one road into Relax: from an ExportedProgram, which every format becomes first, to an imported model."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

# Decomposing imports these lazily, for a CPU second: as imports of this file they are paid once, by the process that
# workers are forked from.
import torch._functorch.aot_autograd
import torch.fx.experimental.proxy_tensor
import torch.utils._pytree as pytree
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from tvm import relax

from service.compiler import corrections
from service.compiler.eager import EagerReference, user_input_specs
from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel
from service.compiler.importers.example_inputs import read_inputs_file, reconcile_declared
from service.compiler.node_values import NodeValues
from service.compiler.provenance import Origin
from service.compiler.readers.operator_uses import Use, refusal
from service.compiler.readers.refusal import too_many
from service.compiler.settled import is_foldable
from service.compiler.site import Site, operator_name
from service.compiler.size_guards import size_conditions
from service.compiler.translation import Translation
from service.errors import ImportFailed
from service.nouns import CompileJob, Dim, Limits, Signature, TensorSpec
from service.runtime.session import Array

UNKNOWN_SIZE = 2
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def import_program(program: torch.export.ExportedProgram, job: CompileJob) -> ImportedModel:
    """The model in Relax with its Signature, example inputs and eager reference.

    Raises ImportFailed, SignatureMismatch, InvalidInputsFile.
    """
    _refuse_size(program, job.limits)
    decomposed = decompose(program, job)
    # Only the decomposed form names what is changed: before, `add_` is an operator like any other.
    _refuse_state(decomposed)
    _refuse_layouts(decomposed)
    specs = user_input_specs(program)
    signature = reconcile_declared(_signature(program, specs), job.inputs)
    conditions = size_conditions(program)
    reference = EagerReference(program, conditions)
    examples = example_inputs(reference, signature, job)
    with boundary(ImportFailed, "The model could not be imported", job.limits, step=0):
        notes = _drop_constants(decomposed)
        _refuse_operators(decomposed)
        _refuse_empty(decomposed)
        translation = Translation(decomposed, corrections.converters(), conditions)
        module = translation.run()
    origins = {name: _origin(node) for name, node in translation.origins.items()}
    node_of = {str(value.name): node.name for node, value in translation.values.items() if isinstance(value, relax.Var)}
    return ImportedModel(module, signature, examples, reference, notes, origins, node_of, NodeValues(decomposed).run)


def _refuse_size(program: torch.export.ExportedProgram, limits: Limits) -> None:
    """Before anything is done with it: whatever its format, what it has is counted here."""
    nodes = sum(len(module.graph.nodes) for module in program.graph_module.modules() if hasattr(module, "graph"))
    tensors = [*program.state_dict.values(), *program.constants.values()]
    held = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in _tensors_of(tensors)}
    sizes = {
        "nodes": (nodes, limits.nodes, "RELAXD_NODES"),
        "parameters and constants": (len(tensors), limits.parameters, "RELAXD_PARAMETERS"),
        "bytes of parameters and constants": (sum(held.values()), limits.constant_bytes, "RELAXD_CONSTANT_BYTES"),
    }
    for what, (count, limit, setting) in sizes.items():
        if count > limit:
            raise too_many(count, what, limit, setting)


def _tensors_of(values: list[Any]) -> list[torch.Tensor]:
    """The tensors with a storage; sparse ones have none, and are refused by `_refuse_layouts`."""
    return [value for value in values if isinstance(value, torch.Tensor) and value.layout == torch.strided]


def example_inputs(reference: EagerReference, signature: Signature, job: CompileJob) -> list[Array]:
    """Those of the request, or of the file, or random ones. Raises InvalidInputsFile, SignatureMismatch."""
    if job.inputs_path is not None:
        return read_inputs_file(job.inputs_path, signature)
    return reference.example_inputs() or _random_inputs(signature)


def _origin(node: torch.fx.Node) -> Origin:
    site = Site.of(node)
    return Origin(node.name, site.operator, site.module, site.source)


def decompose(program: torch.export.ExportedProgram, job: CompileJob) -> torch.export.ExportedProgram:
    """The program in the operators that are converted, as far as PyTorch can write it so. Raises ImportFailed."""
    with boundary(ImportFailed, "PyTorch could not decompose the model", job.limits, step=0):
        return program.run_decompositions(_decompositions())


def signature_of(program: torch.export.ExportedProgram, job: CompileJob) -> Signature:
    """The program's Signature with the names that the request gives. Raises ImportFailed, SignatureMismatch."""
    return reconcile_declared(_signature(program, user_input_specs(program)), job.inputs)


def unsupported_sites(program: torch.export.ExportedProgram) -> list[Site]:
    """Every call in a decomposed program that cannot be compiled: unknown operators and those that draw numbers."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    return [Site.of(node) for node in nodes if _is_random(node.target) or not _is_supported(node)]


def _decompositions() -> Any:
    """PyTorch's decompositions into core operators, but for what `corrections/` keeps whole or replaces."""
    table = torch.export.default_decompositions()
    for operator in list(table):
        if str(operator) in corrections.kept():
            del table[operator]
    for name, rule in corrections.decompositions().items():
        _, operator, overload = name.split(".")
        table[getattr(getattr(torch.ops.aten, operator), overload)] = rule
    return table


def _signature(program: torch.export.ExportedProgram, specs: list[Any]) -> Signature:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    outputs: list[TensorSpec] = []
    names = iter(_output_names(program))
    for spec in program.graph_signature.output_specs:
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            continue
        if isinstance(spec.arg, TensorArgument):
            outputs.append(_tensor_spec(next(names) or f"output_{len(outputs)}", values[spec.arg.name]))
        elif getattr(spec.arg, "value", 0) is None:
            next(names)
        else:
            raise ImportFailed(
                f"Result {len(outputs)} of the model is a number or a symbol, not a tensor. "
                "Return tensors only and export the model again.",
                step=0,
            )
    if not outputs:
        raise ImportFailed("The model returns no tensor, so there is nothing to compile.", step=0)
    given = _input_names(program)
    inputs = tuple(_tensor_spec(given.get(spec.arg.name, spec.arg.name), values[spec.arg.name]) for spec in specs)
    return Signature(inputs, tuple(outputs), _symbols(program, inputs))


def _input_names(program: torch.export.ExportedProgram) -> dict[str, str]:
    """The names of the user's forward for inputs that are no containers: torch.export writes them in small letters."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    names = list(signature.forward_arg_names or ()) if signature is not None else []
    if program.call_spec.in_spec is None:
        return {}
    args, kwargs = program.call_spec.in_spec.children()
    if len(names) != len(args.children()) + len(kwargs.children()):
        return {}
    leaves = iter(specs)
    found = {}
    for name, part in zip(names, [*args.children(), *kwargs.children()], strict=True):
        own = [next(leaves, None) for _ in range(part.num_leaves)]
        if part.is_leaf() and own[0] is not None:
            found[own[0].arg.name] = name
    taken = [found.get(spec.arg.name, spec.arg.name) for spec in specs]
    return found if len(set(taken)) == len(taken) else {}


def _symbols(
    program: torch.export.ExportedProgram, inputs: tuple[TensorSpec, ...]
) -> dict[str, tuple[int, int | None]]:
    """The sizes that the export allows for each symbol of the inputs' dimensions."""
    used = {name for spec in inputs for dim in spec.shape if isinstance(dim, str) for name in _SYMBOL.findall(dim)}
    return {
        # Never 0: a kernel that reduces an empty axis leaves its result unwritten.
        str(symbol): (max(1, int(bounds.lower)), int(bounds.upper) if bounds.upper.is_Integer else None)
        for symbol, bounds in program.range_constraints.items()
        if str(symbol) in used
    }


def _output_names(program: torch.export.ExportedProgram) -> list[str]:
    """The keys of the dicts in which the results stand, joined by dots; empty where there is none.

    As many as the results of any kind; all empty where two would be the same.
    """
    structure = program.call_spec.out_spec
    count = sum(
        spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT) for spec in program.graph_signature.output_specs
    )
    if structure is None or structure.num_leaves != count:
        return [""] * count
    leaves = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), structure))[0]
    names = [_joined(path) for path, _ in leaves]
    given = [name for name in names if name]
    return names if len(set(given)) == len(given) else [""] * count


def _joined(path: Any) -> str:
    keys = [str(getattr(part, "key", getattr(part, "idx", ""))) for part in path]
    return ".".join(keys) if any(isinstance(part, pytree.MappingKey) for part in path) else ""


def _tensor_spec(name: str, value: Any) -> TensorSpec:
    shape: tuple[Dim, ...] = tuple(str(dim) if isinstance(dim, torch.SymInt) else int(dim) for dim in value.shape)
    return TensorSpec(name, shape, str(value.dtype).removeprefix("torch."))


def _random_inputs(signature: Signature) -> list[Array]:
    """Inputs for an archive without example inputs: small whole numbers or standard normal."""
    generator = np.random.default_rng(0)
    inputs = []
    for spec in signature.inputs:
        shape = tuple(dim if isinstance(dim, int) else UNKNOWN_SIZE for dim in spec.shape)
        dtype = np.dtype(spec.dtype)
        if dtype.kind in "fc":
            inputs.append(generator.standard_normal(shape).astype(dtype))
        else:
            inputs.append(generator.integers(0, 2, shape).astype(dtype))
    return inputs


def _refuse_state(program: torch.export.ExportedProgram) -> None:
    """Raises ImportFailed when the model changes a buffer or an input: a compiled library keeps no state."""
    signature = program.graph_signature
    for kind, mutated in (("buffer", signature.buffers_to_mutate), ("input", signature.user_inputs_to_mutate)):
        names = sorted(set(mutated.values()))
        if names:
            raise ImportFailed(
                f"The model changes its {kind} {names[0]!r} when it runs, and a compiled library keeps no state. "
                "Call `model.eval()` before torch.export.export, or take the state as an input and return it.",
                step=0,
                **{kind + "s": names},
            )


def _refuse_layouts(program: torch.export.ExportedProgram) -> None:
    """Raises ImportFailed naming a parameter or buffer that is sparse, quantised or complex."""
    stored = {**program.state_dict, **program.constants}
    for name, tensor in stored.items():
        if not isinstance(tensor, torch.Tensor):
            raise ImportFailed(f"The model holds {name!r}, which is no tensor but {type(tensor).__name__}.", step=0)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex():
            kind = (
                "quantised" if tensor.is_quantized else str(tensor.layout if not tensor.is_complex() else tensor.dtype)
            )
            raise ImportFailed(
                f"The tensor {name!r} of the model is {kind}; only dense real tensors can be compiled. "
                "Call `.to_dense()` on it before exporting.",
                step=0,
                buffers=[name],
            )


def _refuse_operators(program: torch.export.ExportedProgram) -> None:
    """Raises ImportFailed naming every operator that draws random numbers or that TVM cannot convert."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    random = {str(node.target) for node in nodes if _is_random(node.target)}
    if random:
        raise ImportFailed(
            f"The model draws random numbers ({', '.join(sorted(random))}), which a compiled library would freeze. "
            "Call `model.eval()` before torch.export.export, or take the random numbers as an input.",
            step=0,
            operators=sorted(random),
        )
    unknown = [Site.of(node) for node in _converted(program, nodes) if not _is_supported(node)]
    if unknown:
        raise _unsupported(unknown)


def _converted(program: torch.export.ExportedProgram, nodes: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """Without the nodes that PyTorch computes once and for all, and with those of branches."""
    stored = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    }
    constants = {node for node in program.graph.nodes if node.op == "placeholder" and node.name in stored}
    left = []
    for node in nodes:
        if is_foldable(node, constants):
            constants.add(node)
        else:
            left.append(node)
    for module in program.graph_module.modules():
        if module is not program.graph_module and isinstance(module, torch.fx.GraphModule):
            left += [node for node in module.graph.nodes if node.op == "call_function"]
    return left


def _is_supported(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    on_sizes = isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat | int | float | bool)
    return on_sizes or operator_name(node.target) in corrections.converters()


def _unsupported(sites: list[Site]) -> ImportFailed:
    """The Problem for all unsupported operators, with up to ten places of each."""
    problem = refusal(Use(site.operator, site.module, site.source) for site in sites)
    for entry in problem.extensions["unsupported"]:
        entry["places"] = [site.to_json() for site in sites if site.operator == entry["operator"]][:10]
    return problem


def _is_random(target: Any) -> bool:
    # Recurrent layers carry the tag for their dropout, which their family refuses by itself.
    kept = operator_name(target) in corrections.converters()
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) and not kept


def _drop_constants(program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """Removes inputs and outputs that are no tensors (None, a fixed number), on which TVM's importer crashes."""
    notes = []
    signature = program.graph_signature
    for spec in list(signature.input_specs):
        if isinstance(spec.arg, ConstantArgument):
            node = next(node for node in program.graph.nodes if node.name == spec.arg.name)
            program.graph.erase_node(node)
            signature.input_specs.remove(spec)
            notes.append(f"Input {spec.arg.name!r} is fixed to {spec.arg.value!r} by the export.")
    names = _output_names(program)
    none = [
        name or str(at)
        for at, (name, spec) in enumerate(zip(names, signature.output_specs, strict=False))
        if isinstance(spec.arg, ConstantArgument)
    ]
    output = program.graph.output_node()
    keep = [not isinstance(spec.arg, ConstantArgument) for spec in signature.output_specs]
    if not all(keep):
        output.args = (tuple(arg for arg, kept in zip(output.args[0], keep, strict=True) if kept),)
        signature.output_specs[:] = [spec for spec, kept in zip(signature.output_specs, keep, strict=True) if kept]
        listed = ", ".join(none)
        notes.append(f"Of the model's results these are always None and are left out of the outputs: {listed}.")
    return tuple(notes)


# What these give of an empty operand is written in full all the same.
_WRITE_ALL = frozenset(
    ("cat", "constant_pad_nd", "full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like", "mm", "bmm",
     "mv", "dot", "addmm", "addmv", "baddbmm", "linear", "sum", "mean", "prod", "any", "all", "var", "std", "var_mean",
     "std_mean", "linalg_vector_norm", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy",
     "index_put", "_unsafe_index_put", "slice_scatter", "searchsorted", "bucketize")
)  # fmt: skip


def _refuse_empty(program: torch.export.ExportedProgram) -> None:
    """Raises ImportFailed where something is computed of nothing, such as a mean over an axis of size 0.

    TensorIR initialises a reduction inside its loops: with no iteration, the result would be left unwritten, and what
    the memory held before would be taken for it.
    """
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        operands = [source.meta.get("val") for source in node.all_input_nodes]
        empty = any(isinstance(value, torch.Tensor) and 0 in value.shape for value in operands)
        name = operator_name(node.target)
        if empty and 0 not in node.meta["val"].shape and name.split(".")[1] not in _WRITE_ALL:
            raise ImportFailed(
                f"{Site.of(node)} computes something of an empty tensor, which is not compiled. "
                "Give all axes a size of at least 1.",
                step=0,
                operators=[name],
            )
