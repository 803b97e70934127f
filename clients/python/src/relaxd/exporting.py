"""PyTorch objects as model files: what `relaxd.compile` uploads. torch is used where the caller has imported it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.arguments import is_tensor, loaded_torch, to_numpy
from relaxd.nouns import TensorSpec
from relaxd.tensors import Array


@dataclass(frozen=True)
class ModelFile:
    """A file to upload, and what the request must say beside it; None where the file says it itself."""

    path: Path
    inputs: tuple[TensorSpec, ...] | None = None
    example_inputs: dict[str, Array] | None = None


@contextlib.contextmanager
def model_file(model: Any, example_inputs: Any, dynamic_shapes: Any) -> Iterator[ModelFile]:
    """The model as a file, which is removed at the end if it was written here.

    Raises TypeError for what is no model, and where example inputs are needed or are not of a form that can be used.
    """
    if isinstance(model, (str, os.PathLike)):
        if dynamic_shapes is not None:
            raise TypeError("a file has its shapes already: `dynamic_shapes` is for PyTorch objects")
        yield ModelFile(Path(model), None, _named(example_inputs))
        return
    torch = loaded_torch()
    if torch is None or not isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        kinds = "an nn.Module, ExportedProgram, ScriptModule, GraphModule, or the path of a file"
        raise TypeError(f"a model is {kinds}; not {type(model).__name__}")
    with tempfile.TemporaryDirectory(prefix="relaxd-") as folder:
        yield _write(torch, model, Path(folder), example_inputs, dynamic_shapes)


def _write(torch: Any, model: Any, folder: Path, example_inputs: Any, dynamic_shapes: Any) -> ModelFile:
    name = type(model).__name__
    if isinstance(model, torch.export.ExportedProgram):
        if dynamic_shapes is not None:
            raise TypeError("an ExportedProgram has its shapes already: give `dynamic_shapes` to torch.export.export")
        path = folder / "model.pt2"
        torch.export.save(model, path)
        return ModelFile(path, None, _named(example_inputs))
    if isinstance(model, torch.jit.ScriptModule):
        path = folder / f"{name}.pt"
        torch.jit.save(model, path)
        return _declared(path, _script_inputs(model), example_inputs, dynamic_shapes)
    if isinstance(model, torch.fx.GraphModule):
        path = folder / f"{name}.pt"
        torch.save(model, path)
        names = [node.target for node in model.graph.nodes if node.op == "placeholder"]
        return _declared(path, names, example_inputs, dynamic_shapes)
    path = folder / f"{name}.pt2"
    program = _export(torch, model, example_inputs, dynamic_shapes)
    torch.export.save(program, path)
    return ModelFile(path, _with_dim_names(program, dynamic_shapes))


def _export(torch: Any, module: Any, example_inputs: Any, dynamic_shapes: Any) -> Any:
    """The module as an ExportedProgram, in evaluation mode; the module's own modes are as before afterwards."""
    if example_inputs is None:
        raise TypeError("an nn.Module is exported with `example_inputs`: a tuple of tensors, or a dict by argument")
    by_name = isinstance(example_inputs, Mapping)
    args = () if by_name else tuple(_tensor(torch, value) for value in _positional(example_inputs))
    kwargs = {name: _tensor(torch, value) for name, value in example_inputs.items()} if by_name else None
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        shapes = _dims(torch, dynamic_shapes)
        return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
    finally:
        for part, training in modes:
            part.training = training


def _dims(torch: Any, shapes: Any) -> Any:
    """`dynamic_shapes` with every string as the torch.export.Dim of that name."""
    if isinstance(shapes, str):
        return torch.export.Dim(shapes)
    if isinstance(shapes, Mapping):
        return {key: _dims(torch, value) for key, value in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return type(shapes)(_dims(torch, value) for value in shapes)
    return shapes


def _with_dim_names(program: Any, dynamic_shapes: Any) -> tuple[TensorSpec, ...] | None:
    """The inputs with the names of `dynamic_shapes`, which an ExportedProgram forgets; None where that is not plain."""
    names = list(program.graph_signature.user_inputs)
    by_input = dynamic_shapes if isinstance(dynamic_shapes, Mapping) else _by_position(names, dynamic_shapes)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    if not by_input or not set(by_input) <= set(names) or not all(is_tensor(values.get(name)) for name in names):
        return None
    called = {}
    for name, dims in by_input.items():
        for axis, dim in _axes(dims):
            label = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
            if label is not None:
                called[str(values[name].shape[axis])] = label
    specs = []
    for name in names:
        shape = [size if isinstance(size, int) else called.get(str(size), str(size)) for size in values[name].shape]
        specs.append(TensorSpec(name, tuple(shape), str(values[name].dtype).removeprefix("torch.")))
    plain = all(isinstance(size, int) or size.isidentifier() for spec in specs for size in spec.shape)
    return tuple(specs) if plain else None


def _axes(dims: Any) -> list[tuple[int, Any]]:
    """The entry of one input in `dynamic_shapes` as pairs of axis and Dim."""
    if isinstance(dims, Mapping):
        return list(dims.items())
    return list(enumerate(dims)) if isinstance(dims, (list, tuple)) else []


def _script_inputs(module: Any) -> list[str]:
    return [argument.name for argument in module.forward.schema.arguments[1:]]


def _declared(path: Path, names: list[str], example_inputs: Any, dynamic_shapes: Any) -> ModelFile:
    """A file without shapes: they are those of the examples, with the names of `dynamic_shapes` in their places."""
    if example_inputs is None:
        return ModelFile(path)
    if isinstance(example_inputs, Mapping):
        examples = dict(example_inputs)
    else:
        examples = _by_position(names, _positional(example_inputs))
    arrays = {name: _array(value, name) for name, value in examples.items()}
    if dynamic_shapes is not None and not isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = _by_position(names, dynamic_shapes)
    specs = []
    for name, array in arrays.items():
        shape: list[int | str] = list(array.shape)
        for axis, dim in _axes((dynamic_shapes or {}).get(name)):
            if dim is not None:
                shape[axis] = dim if isinstance(dim, (int, str)) else dim.__name__
        specs.append(TensorSpec(name, tuple(shape), array.dtype.name))
    return ModelFile(path, tuple(specs), arrays)


def _by_position(names: list[str], values: Sequence[Any] | None) -> dict[str, Any]:
    """The values by name; there may be fewer of them than names."""
    return dict(zip(names, values or (), strict=False))


def _positional(example_inputs: Any) -> Sequence[Any]:
    """A tuple or list as it is; one tensor or array as the only input."""
    return example_inputs if isinstance(example_inputs, (list, tuple)) else (example_inputs,)


def _named(example_inputs: Any) -> dict[str, Array] | None:
    """Example inputs for a file that has its own names."""
    if example_inputs is None:
        return None
    if not isinstance(example_inputs, Mapping):
        raise TypeError("for a file or an ExportedProgram, `example_inputs` is a dict by input name")
    return {name: _array(value, name) for name, value in example_inputs.items()}


def _array(value: Any, name: str) -> Array:
    return to_numpy(value, name) if is_tensor(value) else np.asarray(value)


def _tensor(torch: Any, value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
