"""The generic translator of the MLC lecture: a node map, and rules for functions and layers by what they are.

The graph is walked once. An input becomes a parameter; a weight, fetched by its name, a constant; a call of a function
or a layer what the rule of `course_rules` makes of it, with operators of Relax or with calls of TensorIR functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch import nn
from tvm import IRModule, relax, tirx

from service.compiler.constants import relax_constant
from service.compiler.eager import EagerReference
from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel, find_importer
from service.compiler.importers.course_graph import graph_module
from service.compiler.importers.course_operators import OPERATOR_SETS, Emitter, OperatorSet
from service.compiler.importers.course_rules import FUNCTIONS, MODULES, Unsupported
from service.compiler.importers.program import example_inputs, signature_of
from service.compiler.provenance import Origin
from service.compiler.readers.archive import ArchiveLimits
from service.compiler.readers.fx import read_fx
from service.compiler.site import Site, operator_name
from service.compiler.size_guards import size_conditions
from service.errors import ImportFailed
from service.nouns import CompileJob, ModelFormat, Signature, TensorSpec


def import_model(job: CompileJob) -> ImportedModel:
    """Implements `Importer.import_model` for a job of any format whose translator is ``course``."""
    program = load_program(job)
    signature = signature_of(program, job)
    reference = EagerReference(program, size_conditions(program))
    examples = example_inputs(reference, signature, job)
    with boundary(ImportFailed, "The course translator failed", job.limits, step=0):
        graph = _graph(program, job)
        translation = CourseTranslation(graph, OPERATOR_SETS[job.translator.ops])
        module = translation.run(signature)
    return ImportedModel(module, signature, examples, reference, origins=translation.origins)


def load_program(job: CompileJob) -> torch.export.ExportedProgram:
    """Implements `Importer.load_program`: the Signature and what is right are those of the file's own importer."""
    return find_importer(job.format).load_program(job)


def _graph(program: torch.export.ExportedProgram, job: CompileJob) -> torch.fx.GraphModule:
    """An FX file's own graph, with its layers; of the other formats what torch.export found, in ATen operators."""
    if job.format is not ModelFormat.FX:
        module: torch.fx.GraphModule = program.module(check_guards=False)
        return module
    return graph_module(read_fx(Path(job.model_path), ArchiveLimits.of(job.limits)))


class CourseTranslation:
    """One graph on its way into Relax. Rules of `course_rules` get it as their first argument."""

    def __init__(self, graph: torch.fx.GraphModule, make_operators: type[OperatorSet]) -> None:
        self.graph = graph
        self.builder = relax.BlockBuilder()
        self.emitter = Emitter(self.builder)
        self.ops = make_operators(self.emitter)
        self.node_map: dict[torch.fx.Node, Any] = {}
        self.origins: dict[str, Origin] = {}
        self._params: dict[int, Any] = {}
        # Constants by identity of their tensors, which must therefore live as long.
        self._kept: list[torch.Tensor] = []

    def map_param(self, tensor: torch.Tensor) -> Any:
        """A weight as a constant; one that is used twice is the same."""
        if id(tensor) not in self._params:
            self._params[id(tensor)] = relax_constant(tensor)
            self._kept.append(tensor)
        return self._params[id(tensor)]

    def fetch_attr(self, target: str) -> Any:
        """The tensor that the graph names ``layer.0.weight``. Raises ImportFailed."""
        value: Any = self.graph
        for name in target.split("."):
            value = getattr(value, name, None)
        if not isinstance(value, torch.Tensor):
            raise ImportFailed(f"The model reads {target!r}, which is no tensor of it.", step=0)
        return value

    def value(self, argument: Any) -> Any:
        """An argument of a node: a mapped node as its expression, a plain value as it is."""
        if isinstance(argument, torch.fx.Node):
            return self.node_map[argument]
        if isinstance(argument, list | tuple):
            return [self.value(each) for each in argument]
        return argument

    def run(self, signature: Signature) -> IRModule:
        """The module. Raises ImportFailed naming the node that has no rule."""
        symbols: dict[str, Any] = {}
        inputs = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        if len(inputs) != len(signature.inputs):
            raise ImportFailed("The course translator takes models whose inputs are all tensors.", step=0)
        for node, spec in zip(inputs, signature.inputs, strict=True):
            self.node_map[node] = relax.Var(str(node.target), _tensor_type(spec, symbols))
        with self.builder.function("main", [self.node_map[node] for node in inputs]):
            with self.builder.dataflow():
                for node in self.graph.graph.nodes:
                    if node.op not in ("placeholder", "output"):
                        self._map(node)
                results = self.value(self.graph.graph.output_node().args[0])
                result = self.builder.emit_output(_output(results))
            self.builder.emit_func_output(result)
        return self.builder.get()

    def _map(self, node: torch.fx.Node) -> None:
        if node.op == "get_attr":
            self.node_map[node] = self.map_param(self.fetch_attr(str(node.target)))
            return
        self.emitter.begin(node.name)
        try:
            self.node_map[node] = self._call(node)
        except Unsupported as error:
            raise self._refusal(node, str(error)) from None
        site = Site.of(node)
        origin = Origin(node.name, _called(self.graph, node), site.module, site.source)
        self.origins |= dict.fromkeys(self.emitter.emitted, origin)

    def _call(self, node: torch.fx.Node) -> Any:
        arguments = self.value(list(node.args))
        keywords = {name: self.value(each) for name, each in node.kwargs.items()}
        if node.op == "call_module":
            layer = self.graph.get_submodule(str(node.target))
            module_rule = MODULES.get(type(layer))
            if module_rule is None:
                raise Unsupported(f"it has no rule for the layer {type(layer).__name__}")
            return module_rule(self, layer, *arguments, **keywords)
        rule = FUNCTIONS.get(node.target)
        if rule is None:
            raise Unsupported(f"it has no rule for {operator_name(node.target)}")
        try:
            return rule(self, *arguments, **keywords)
        except TypeError as error:
            raise Unsupported(f"its rule for {operator_name(node.target)} does not take these arguments") from error

    def _refusal(self, node: torch.fx.Node, reason: str) -> ImportFailed:
        called = _called(self.graph, node)
        return ImportFailed(
            f"The course translator cannot translate node {node.name!r} ({called}): {reason}. "
            "It knows the operators of the lecture's networks; leave `import` out to use relaxd's own converters.",
            step=0,
            node=node.name,
            operators=[called],
        )


def _called(graph: torch.fx.GraphModule, node: torch.fx.Node) -> str:
    if node.op == "call_module":
        layer: nn.Module = graph.get_submodule(str(node.target))
        return type(layer).__name__
    return operator_name(node.target)


def _tensor_type(spec: TensorSpec, symbols: dict[str, Any]) -> Any:
    dims = []
    for dim in spec.shape:
        if isinstance(dim, str):
            if not dim.isidentifier():
                raise ImportFailed(
                    f"Input {spec.name!r} has a size {dim}; the course translator takes numbers and symbols.", step=0
                )
            dim = symbols.setdefault(dim, tirx.Var(dim, "int64"))  # noqa: PLW2901
        dims.append(dim)
    return relax.TensorType(dims, spec.dtype)


def _output(results: Any) -> Any:
    listed: Sequence[Any] = results if isinstance(results, list) else [results]
    if not all(isinstance(each, relax.Expr) for each in listed):
        raise ImportFailed("The course translator takes models that return tensors, one or several.", step=0)
    return listed[0] if len(listed) == 1 else relax.Tuple(listed)
