"""A part of a program as a program of its own: some of its nodes, with eager's values for what they read."""

from __future__ import annotations

import io
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.fx
import torch.fx.traceback
from torch.export.graph_signature import InputKind, TensorArgument

from service.compiler.constants import tensor_of
from service.compiler.eager import EagerReference
from service.compiler.importers import find_importer
from service.compiler.importers.program import decompose, example_inputs, signature_of
from service.compiler.size_guards import size_conditions
from service.errors import JsonObject
from service.nouns import CompileJob
from service.symptoms import Fragment

# Longer tensors are drawn in the printed module; the file has the values.
LITERAL_ELEMENTS = 16
# Lists of sizes, in which a dimension that changes must change, too.
_SHAPED = (
    "view",
    "_unsafe_view",
    "reshape",
    "expand",
    "full",
    "new_full",
    "new_zeros",
    "new_ones",
    "zeros",
    "ones",
    "empty",
    "repeat",
)


class NotReducible(Exception):
    """PyTorch does not accept the part as a program."""


@dataclass(frozen=True)
class Whole:
    """A program in the operators that are converted, and what its nodes read when it runs on its example inputs."""

    program: torch.export.ExportedProgram
    inputs: list[torch.Tensor]

    @classmethod
    def load(cls, job: CompileJob) -> Whole:
        """The program of a job. Raises what importing it raises."""
        program = find_importer(job.format).load_program(job)
        reference = EagerReference(program, size_conditions(program))
        arrays = example_inputs(reference, signature_of(program, job), job)
        return cls(decompose(program, job), [tensor_of(value) for value in arrays])

    def parts(self) -> list[list[torch.fx.Node]]:
        """What can be left out: nodes that give tensors, each with those that take one of its several results."""
        groups: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        for node in self.program.graph.nodes:
            if node.op != "call_function" or not _gives_tensors(node):
                continue
            source = node.args[0] if node.target is operator.getitem else None
            groups.setdefault(source if source in groups else node, []).append(node)
        return list(groups.values())


@dataclass(frozen=True)
class Reduced:
    """A program of its own, saved; `code` is the same as a module in Python."""

    program: torch.export.ExportedProgram
    code: str
    nodes: int
    outputs: int
    sizes: tuple[int, ...]

    def save(self, path: str) -> None:
        """Writes the ``.pt2`` to the existing file `path`."""
        archive = io.BytesIO()
        torch.export.save(self.program, archive)
        Path(path).write_bytes(archive.getvalue())

    def to_json(self) -> JsonObject:
        return {"code": self.code, "nodes": self.nodes, "outputs": self.outputs, "sizes": list(self.sizes)}


def part_of(whole: Whole, node_name: str | None) -> int | None:
    """The position of the part that has the node of that name."""
    for position, part in enumerate(whole.parts()):
        if any(node.name == node_name for node in part):
            return position
    return None


def reduce(whole: Whole, fragment: Fragment) -> Reduced:
    """The part of the program. What it reads from the rest becomes an input. Raises NotReducible."""
    parts = whole.parts()
    chosen = range(len(parts)) if fragment.nodes is None else fragment.nodes
    kept = {node for position in chosen for node in parts[position]}
    cut = _Cut(whole, kept, dict(fragment.sizes))
    try:
        with torch.no_grad(), torch.fx.traceback.preserve_node_meta():
            module, inputs = cut.module(fragment.outputs)
            program = torch.export.export(module, tuple(inputs), strict=False)
    except Exception as error:
        raise NotReducible(f"{type(error).__name__}: {str(error)[:300]}") from error
    held = [*inputs, *module.buffers()]
    sizes = sorted({size for tensor in held for size in tensor.shape if size > 1}, reverse=True)
    return Reduced(program, _printed(module, inputs), len(chosen), cut.outputs, tuple(sizes))


class _Cut:
    """Copies nodes into a graph of their own."""

    def __init__(self, whole: Whole, kept: set[torch.fx.Node], sizes: Mapping[int, int]) -> None:
        self._whole = whole
        self._kept = kept
        self._sizes = sizes
        self._graph = torch.fx.Graph()
        self._root = torch.nn.Module()
        self._copies: dict[torch.fx.Node, Any] = {}
        self._inputs: list[torch.Tensor] = []
        self.outputs = 0

    def module(self, outputs: tuple[int, ...] | None) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
        """The part as a module, and its example inputs; it returns what was read elsewhere, or the chosen of that."""
        values = self._values()
        stored = _stored(self._whole.program)
        # Inputs first, as a graph must have them.
        for node in self._cut_nodes():
            if node in stored:
                self._copies[node] = self._constant(*stored[node])
            elif node.op == "get_attr":
                self._copies[node] = self._attribute(node)
            elif isinstance(values[node], torch.Tensor):
                self._copies[node] = self._graph.placeholder(node.name)
                self._inputs.append(self._resized(values[node]))
            else:
                self._copies[node] = values[node]
        self._order_inputs()
        for node in self._whole.program.graph.nodes:
            if node in self._kept:
                self._copies[node] = self._graph.node_copy(node, self._copy_of)
                self._copies[node].args = self._with_sizes(self._copies[node])
        escaping = [node for node in self._whole.program.graph.nodes if self._escapes(node)]
        self.outputs = len(escaping)
        if outputs is not None:
            escaping = [escaping[position] for position in outputs if position < len(escaping)]
            self.outputs = len(escaping)
        self._graph.output(tuple(self._copies[node] for node in escaping))
        self._graph.eliminate_dead_code()
        module = torch.fx.GraphModule(self._root, self._graph)
        module.eval()
        return module, self._inputs

    def _cut_nodes(self) -> list[torch.fx.Node]:
        """What the part reads and does not compute, in the order of the program."""
        read = {source for node in self._kept for source in node.all_input_nodes} - self._kept
        return [node for node in self._whole.program.graph.nodes if node in read]

    def _values(self) -> dict[torch.fx.Node, Any]:
        return _Recorder(self._whole.program.graph_module, set(self._cut_nodes())).values_of(self._whole)

    def _order_inputs(self) -> None:
        """Placeholders before attributes: the order in which they were found is that of the program."""
        first = next((node for node in self._graph.nodes if node.op != "placeholder"), None)
        if first is not None:
            for node in [node for node in self._graph.nodes if node.op == "placeholder"]:
                first.prepend(node)

    def _constant(self, target: str, tensor: torch.Tensor) -> torch.fx.Node:
        name = target.replace(".", "_")
        while hasattr(self._root, name):
            name += "_"
        self._root.register_buffer(name, self._resized(tensor.detach()))
        return self._graph.get_attr(name)

    def _attribute(self, node: torch.fx.Node) -> torch.fx.Node:
        setattr(self._root, str(node.target), getattr(self._whole.program.graph_module, str(node.target)))
        return self._graph.get_attr(str(node.target))

    def _copy_of(self, node: torch.fx.Node) -> Any:
        return self._copies[node]

    def _resized(self, tensor: torch.Tensor) -> torch.Tensor:
        for axis, size in enumerate(tensor.shape):
            if size in self._sizes:
                tensor = tensor.narrow(axis, 0, self._sizes[size])
        return tensor.clone(memory_format=torch.contiguous_format)

    def _with_sizes(self, node: torch.fx.Node) -> Any:
        name = str(node.target).split(".")[1] if "." in str(node.target) else ""
        if not self._sizes or name not in _SHAPED:
            return node.args
        return tuple([self._size(each) for each in arg] if isinstance(arg, list | tuple) else arg for arg in node.args)

    def _size(self, size: Any) -> Any:
        if not isinstance(size, int):
            return size
        for old, new in self._sizes.items():
            if size >= old and size % old == 0:
                return size // old * new
        return size

    def _escapes(self, node: torch.fx.Node) -> bool:
        """Whether a kept node is a tensor that the rest reads, or that nothing reads."""
        if node not in self._kept or not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        return not node.users or any(user not in self._kept for user in node.users)


class _Recorder(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a program and keeps the values of some nodes as they were when they were computed."""

    def __init__(self, module: torch.fx.GraphModule, wanted: set[torch.fx.Node]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self._found: dict[torch.fx.Node, Any] = {}

    def values_of(self, whole: Whole) -> dict[torch.fx.Node, Any]:
        stored = _stored(whole.program)
        given = iter(whole.inputs)
        arguments = []
        places = [node for node in whole.program.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(places, whole.program.graph_signature.input_specs, strict=True):
            if node in stored:
                arguments.append(stored[node][1])
            else:
                is_tensor = isinstance(spec.arg, TensorArgument)
                arguments.append(next(given) if is_tensor else getattr(spec.arg, "value", None))
        with torch.no_grad():
            self.run(*arguments)
        return self._found

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n in self._wanted:
            self._found[n] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


def _stored(program: torch.export.ExportedProgram) -> dict[torch.fx.Node, tuple[str, torch.Tensor]]:
    """The placeholders of weights and constants, with their names and values."""
    store = {**program.constants, **program.state_dict}
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    return {
        node: (str(spec.target), store[spec.target])
        for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True)
        if spec.kind is not InputKind.USER_INPUT
    }


def _gives_tensors(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return any(isinstance(each, torch.Tensor) for each in value)
    return isinstance(value, torch.Tensor)


def _printed(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> str:
    """A script that makes the module and exports it."""
    # Without what frees values early.
    source = re.sub(r";\s+(?:\w+ = )+None", "", module.graph.python_code("self").src)
    forward = source.strip().splitlines()
    buffers = [f"        self.register_buffer({name!r}, {_tensor(each)})" for name, each in module.named_buffers()]
    values = "".join(f"    {_tensor(value)},\n" for value in inputs)
    lines = [
        "import torch",
        "from torch import device, inf, nan  # noqa: F401",
        "",
        "",
        "class Reduced(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *buffers,
        "",
        *(f"    {line}".rstrip() for line in forward),
        "",
        "",
        "torch.manual_seed(0)  # longer tensors are drawn: the .pt2 has their values",
        "model = Reduced().eval()",
        f"inputs = (\n{values})",
        "program = torch.export.export(model, inputs)",
        "",
    ]
    return "\n".join(lines)


def _tensor(value: torch.Tensor) -> str:
    shape, dtype = tuple(value.shape), value.dtype
    if value.numel() <= LITERAL_ELEMENTS:
        return (
            f"torch.tensor({value.tolist()}, dtype={dtype})"
            if value.numel()
            else f"torch.empty({shape}, dtype={dtype})"
        )
    if value.is_floating_point():
        return f"torch.randn({shape}).to({dtype})"
    return f"torch.zeros({shape}, dtype={dtype})"
