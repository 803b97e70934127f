"""A `torch.save`d FX GraphModule, read without unpickling: its layers, their weights and the steps of its forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler.readers.archive import Archive, ArchiveLimits
from service.compiler.readers.fx_code import FxProgram, read_forward
from service.compiler.readers.fx_names import CONSTANTS, FUNCTIONALS, LAYERS
from service.compiler.readers.inert_pickle import Call, Global
from service.compiler.readers.names import is_plain_path
from service.compiler.readers.refusal import damaged, shown, too_many, unsafe
from service.compiler.readers.torch_file import StoredTensor, TorchFile
from service.errors import ImportFailed

MAX_LAYERS = 100_000
MAX_DEPTH = 50
REDUCE = Global("torch.fx.graph_module", "reduce_graph_module")

_BOOKKEEPING = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training", "_is_full_backward_hook",
     "_version", "_compiled_call_impl", "__overloads__", "call_super_init", "_flat_weights", "_flat_weight_refs"}
)  # fmt: skip
# Attributes of a GraphModule that describe its code, not its layers.
_OF_GRAPHS = frozenset(
    {"_code", "code", "_graphmodule_cls_name", "_tracer_cls", "_tracer_extras", "meta", "_replace_hooks",
     "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks", "shape_env", "_lineno_map", "_prologue_start",
     "_shape_env"}
)  # fmt: skip


@dataclass(eq=False)
class Layer:
    """A layer of PyTorch by its class's name, with plain attributes, tensors and layers inside."""

    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, StoredTensor | None] = field(default_factory=dict)
    buffers: dict[str, StoredTensor | None] = field(default_factory=dict)
    transient: frozenset[str] = frozenset()
    children: dict[str, Layer | None] = field(default_factory=dict)
    # Of a graph module inside of another: its own forward.
    program: FxProgram | None = None


@dataclass(frozen=True)
class NamedValue:
    """An attribute that is a function or constant of PyTorch from the allowlist, by its full name."""

    name: str


@dataclass(frozen=True)
class FxFile:
    """The whole module: `root` has the weights, `program` the forward, `storages` the tensors' bytes by name."""

    root: Layer
    program: FxProgram
    storages: dict[str, bytes]


def read_fx(source: Path, limits: ArchiveLimits) -> FxFile:
    """Reads the file at `source`. Raises DamagedModel, UnsafeModel, ImportFailed naming an operator."""
    with source.open("rb") as file, Archive(file, limits) as archive:
        saved = TorchFile(archive)
        root = _LayerReader().read_graph(saved.tree, "", 0)
        if root.program is None:
            raise damaged("The file holds no FX graph module")
        if len(root.program.steps) > limits.nodes:
            raise too_many(len(root.program.steps), "nodes", limits.nodes, "RELAXD_NODES")
        return FxFile(root, root.program, {tensor.storage: saved.storage(tensor) for tensor in _tensors(root)})


def _graph_module(tree: Any) -> tuple[dict[str, Any], str]:
    if not isinstance(tree, Call) or tree.function != REDUCE or tree.state is not None:
        raise damaged("The file holds no FX graph module")
    arguments = tree.arguments
    if (
        not isinstance(arguments, tuple)
        or len(arguments) != 2
        or not isinstance(arguments[0], dict)
        or not isinstance(arguments[1], str)
    ):
        raise damaged("The graph module is made of the wrong parts")
    return arguments[0], arguments[1]


def _tensors(layer: Layer) -> Iterator[StoredTensor]:
    for values in (layer.parameters, layer.buffers, layer.attributes):
        for value in values.values():
            if isinstance(value, StoredTensor):
                yield value
    for child in layer.children.values():
        if child is not None:
            yield from _tensors(child)


class _LayerReader:
    """Turns the records of modules into layers; a module that is used twice becomes one layer."""

    def __init__(self) -> None:
        self._made: dict[int, Layer] = {}
        self._lines: list[str] = []

    def _call_of(self, path: str) -> str | None:
        """The line of the outermost forward that calls the layer at `path`, if there is one."""
        name = path.rpartition(".")[2]
        calls = (f"self.{path}(", f'"{name}")(')
        found = [(number, line) for number, line in enumerate(self._lines, 1) if any(call in line for call in calls)]
        return f"forward:{found[0][0]}: {found[0][1].strip()}"[:300] if found else None

    def _read(self, record: Any, path: str, depth: int) -> Layer | None:
        if record is None:
            return None
        if depth > MAX_DEPTH or len(self._made) > MAX_LAYERS:
            raise unsafe("The module is nested too deeply or too large", path)
        if not isinstance(record, Call):
            raise unsafe(f"The module holds {shown(type(record).__name__)} where a layer belongs", path)
        if id(record) in self._made:
            return self._made[id(record)]
        if record.function == REDUCE:
            layer = self._made[id(record)] = self.read_graph(record, path, depth)
            return layer
        kind = self._kind(record, path)
        if not isinstance(record.state, dict):
            raise damaged("A layer has no state", path)
        layer = self._made[id(record)] = self.read_state(kind, record.state, path, depth)
        return layer

    def _kind(self, record: Call, path: str) -> str:
        function, arguments = record.function, record.arguments
        # copyreg._reconstructor and a plain call of the class: the two ways in which pickle makes an object.
        if function in (Global("copyreg", "_reconstructor"), Global("copy_reg", "_reconstructor")):
            function, arguments = (arguments[0], ()) if isinstance(arguments, tuple) and arguments else (None, None)
        plain = arguments == () and record.keywords is None and not record.items and not record.pairs
        if not isinstance(function, Global) or not plain:
            raise unsafe("A layer is made by calling what is no class", path)
        if not function.module.startswith("torch.nn.modules.") or function.name not in LAYERS:
            line = self._call_of(path)
            raise ImportFailed(
                f"The layer {shown(path)} is a {function}, which is none of PyTorch's layers, and an FX file does not "
                f"hold the code of others{f' ({line})' if line else ''}. Make a .pt2 instead: program = "
                "torch.export.export(model.eval(), (example_input,)); torch.export.save(program, 'model.pt2').",
                step=0,
                layer=path,
                source_line=line,
            )
        return function.name

    def read_graph(self, record: Any, path: str, depth: int) -> Layer:
        """A graph module: a layer with a program. Raises DamagedModel, UnsafeModel, ImportFailed."""
        body, imports = _graph_module(record)
        code = body.get("_code", body.get("code"))
        if not isinstance(code, str):
            raise damaged("The graph module has no code", path)
        self._lines = self._lines or code.splitlines()
        state = {key: value for key, value in body.items() if key not in _OF_GRAPHS}
        layer = self.read_state("Module", state, path, depth)
        layer.program = read_forward(code, imports)
        return layer

    def read_state(self, kind: str, state: dict[Any, Any], path: str, depth: int) -> Layer:
        """The layer with that state. Raises DamagedModel, UnsafeModel."""
        layer = Layer(kind)
        for key, value in state.items():
            if not isinstance(key, str):
                raise unsafe("A layer has an attribute without a name", path)
            if key.endswith("_hooks") or "_hooks_" in key:
                if value:
                    raise unsafe(f"A layer has {shown(key)}, functions that PyTorch would call", path)
            elif key not in _BOOKKEEPING:
                if not key.isidentifier() or (key.startswith("__") and key.endswith("__")):
                    raise unsafe(f"A layer has an attribute {shown(key)}", path)
                layer.attributes[key] = _plain(value, f"{path}.{key}", 0)
        layer.attributes["training"] = False
        layer.parameters = _named_tensors(state.get("_parameters"), path)
        layer.buffers = _named_tensors(state.get("_buffers"), path)
        transient = state.get("_non_persistent_buffers_set")
        layer.transient = frozenset(name for name in _listed(transient) if isinstance(name, str))
        for name, record in _named(state.get("_modules"), path).items():
            layer.children[name] = self._read(record, f"{path}.{name}".removeprefix("."), depth + 1)
        return layer


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _named(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or any(not is_plain_path(key) or not key or "." in key for key in value):
        raise unsafe("A layer has parts without plain names", path)
    return value


def _named_tensors(value: Any, path: str) -> dict[str, StoredTensor | None]:
    named = _named(value, path)
    for name, tensor in named.items():
        if tensor is not None and not isinstance(tensor, StoredTensor):
            raise unsafe(f"The tensor {shown(name)} is a pickled object, not a plain tensor", path)
    return named


def _plain(value: Any, path: str, depth: int) -> Any:
    """The attribute, of numbers, texts, tensors and containers of these. Raises UnsafeModel."""
    if depth > 8:
        raise unsafe("An attribute is nested too deeply", path)
    if isinstance(value, (int, float, bool, str, type(None), complex, StoredTensor)):
        return value
    if isinstance(value, (list, tuple)) and len(value) <= 10_000:
        return type(value)(_plain(part, path, depth + 1) for part in value)
    if isinstance(value, dict) and all(isinstance(key, (str, int)) for key in value):
        return {key: _plain(part, path, depth + 1) for key, part in value.items()}
    if isinstance(value, Global):
        name = str(value).replace("torch._C._nn.", "torch.nn.functional.")
        if name in CONSTANTS or name in FUNCTIONALS:
            return NamedValue(name)
    if isinstance(value, Call) and value.function == Global("torch", "Size"):
        sizes = _listed(value.arguments)
        return _plain(tuple(_listed(sizes[0])) if sizes else (), path, depth + 1)
    raise unsafe(f"A layer has an attribute that is no plain value: {shown(getattr(value, 'function', value))}", path)
