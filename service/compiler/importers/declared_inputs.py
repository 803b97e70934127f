"""The inputs of a model whose file does not carry their shapes: from the request or from the example inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from service.compiler.importers.example_inputs import read_arrays
from service.errors import SignatureMismatch, nearest
from service.nouns import CompileJob, Dim, TensorSpec

# What a symbol stands for while the model is exported: a size that is neither 0 nor 1, which PyTorch would fix.
FIRST_SIZE = 3


@dataclass(frozen=True)
class Parameter:
    """One parameter of a forward. `is_tensor` says that it takes a tensor; `optional` that it can be left out."""

    name: str
    is_tensor: bool = True
    optional: bool = False
    type: str = "Tensor"


@dataclass(frozen=True)
class Arguments:
    """Example tensors by name in the forward's order, and their dynamic dimensions as torch.export takes them."""

    tensors: dict[str, torch.Tensor]
    dynamic: dict[str, dict[int, Any]]


def declared_names(job: CompileJob) -> frozenset[str]:
    """The inputs that the request declares or gives examples of. Raises InvalidInputsFile."""
    if job.inputs is not None:
        return frozenset(spec.name for spec in job.inputs)
    return frozenset() if job.inputs_path is None else frozenset(read_arrays(job.inputs_path))


def declared_arguments(
    job: CompileJob, parameters: Sequence[Parameter], known: Sequence[TensorSpec] | None = None
) -> Arguments:
    """Arguments for the forward's `parameters`: as declared in the request, else as the example inputs are, else as
    `known` from the file.

    Raises SignatureMismatch naming the parameters when there is none of these or they do not fit; InvalidInputsFile.
    """
    arrays = {} if job.inputs_path is None else read_arrays(job.inputs_path)
    if job.inputs is not None:
        specs: Sequence[TensorSpec] = job.inputs
    elif arrays:
        specs = [TensorSpec(name, array.shape, array.dtype.name) for name, array in arrays.items()]
    elif known is not None:
        specs = known
    else:
        raise _missing(parameters)
    by_name = {spec.name: spec for spec in specs}
    _check_names(list(by_name), parameters)
    sizes: dict[str, int] = {}
    dims: dict[str, Any] = {}
    arguments = Arguments({}, {})
    for parameter in parameters:
        if parameter.name not in by_name:
            continue
        spec = by_name[parameter.name]
        shape = tuple(_size(dim, sizes) for dim in spec.shape)
        arguments.tensors[spec.name] = _example(spec, shape, arrays.get(spec.name))
        arguments.dynamic[spec.name] = {
            axis: dims.setdefault(dim, torch.export.Dim(dim))
            for axis, dim in enumerate(spec.shape)
            if isinstance(dim, str)
        }
    return arguments


def _size(dim: Dim, sizes: dict[str, int]) -> int:
    return sizes.setdefault(dim, FIRST_SIZE + 2 * len(sizes)) if isinstance(dim, str) else dim


def _example(spec: TensorSpec, shape: tuple[int, ...], array: Any) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if array is not None and array.dtype.name == spec.dtype and array.shape == shape:
        return torch.from_numpy(np.array(array))
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def _check_names(names: list[str], parameters: Sequence[Parameter]) -> None:
    known = {parameter.name: parameter for parameter in parameters}
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise SignatureMismatch(
                f"`inputs` names {name!r}, but the model's forward takes {described(parameters)}.{hint}",
                field="inputs",
                input=name,
                expected=list(known),
                step=0,
            )
        if not known[name].is_tensor:
            raise SignatureMismatch(
                f"`inputs` names {name!r}, which is no tensor but a {known[name].type} of the model's forward. "
                "Export a module with a fixed value for it.",
                field="inputs",
                input=name,
                step=0,
            )
    for parameter in parameters:
        if parameter.name not in names and not parameter.optional:
            raise SignatureMismatch(
                f"`inputs` lacks {parameter.name!r}; the model's forward takes {described(parameters)}.",
                field="inputs",
                input=parameter.name,
                expected=list(known),
                step=0,
            )


def described(parameters: Sequence[Parameter]) -> str:
    """The parameters as a person would list them."""
    return ", ".join(
        f"`{parameter.name}: {parameter.type}`" + (" (optional)" if parameter.optional else "")
        for parameter in parameters
    )


def _missing(parameters: Sequence[Parameter]) -> SignatureMismatch:
    declared = [
        {"name": parameter.name, "shape": ["batch"], "dtype": "float32"}
        for parameter in parameters
        if parameter.is_tensor
    ]
    return SignatureMismatch(
        f"The file does not say the shapes and dtypes of its inputs. The model's forward takes {described(parameters)}"
        ": declare them in `inputs` of the request, with the dimensions that vary as names, such as "
        f"{str(declared[:1]).replace(chr(39), chr(34))}, or send example inputs as an .npz in the part `inputs`.",
        field="inputs",
        expected=[parameter.name for parameter in parameters],
        step=0,
    )
