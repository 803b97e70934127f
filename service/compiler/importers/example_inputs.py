"""What the request says about the inputs, held against the model's own Signature."""

from __future__ import annotations

import re
import zipfile
from typing import Any

import numpy as np

from service.errors import InvalidInputsFile, SignatureMismatch
from service.nouns import Signature, TensorSpec
from service.runtime.session import Array


def reconcile_declared(signature: Signature, declared: tuple[TensorSpec, ...] | None) -> Signature:
    """`signature` with the names that the request gives to its symbols.

    Raises SignatureMismatch, naming the field, where the request contradicts the model.
    """
    if declared is None:
        return signature
    expected = {spec.name: spec for spec in signature.inputs}
    names: dict[str, str] = {}
    for index, spec in enumerate(declared):
        where = f"inputs[{index}]"
        if spec.name not in expected:
            raise _mismatch(f"the model has no input {spec.name!r}; it has {_listed(signature)}", f"{where}.name")
        model = expected.pop(spec.name)
        if spec.dtype != model.dtype:
            raise _mismatch(f"input {spec.name!r} is {model.dtype} in the model, not {spec.dtype}", f"{where}.dtype")
        if len(spec.shape) != len(model.shape):
            raise _mismatch(
                f"input {spec.name!r} has {len(model.shape)} dimensions in the model, {list(model.shape)}, "
                f"not {len(spec.shape)}",
                f"{where}.shape",
            )
        for position, (mine, theirs) in enumerate(zip(spec.shape, model.shape, strict=True)):
            _match_dim(spec.name, mine, theirs, f"{where}.shape[{position}]", names)
    if expected:
        raise _mismatch(f"the model has an input {next(iter(expected))!r} that is not declared", "inputs")
    symbols = {names.get(symbol, symbol): bounds for symbol, bounds in signature.symbols.items()}
    return Signature(_renamed(signature.inputs, names), _renamed(signature.outputs, names), symbols)


def _match_dim(name: str, mine: int | str, theirs: int | str, where: str, names: dict[str, str]) -> None:
    if isinstance(mine, int) != isinstance(theirs, int) or (isinstance(mine, int) and mine != theirs):
        remedy = "export it with `dynamic_shapes`" if isinstance(theirs, int) else "declare a name for it"
        raise _mismatch(f"this dimension of input {name!r} is {theirs!r} in the model, not {mine!r}; {remedy}", where)
    if isinstance(mine, int) or not str(theirs).isidentifier():
        return
    if names.setdefault(str(theirs), str(mine)) != mine:
        raise _mismatch(f"{mine!r} and {names[str(theirs)]!r} are one symbol in the model", where)
    if any(other == mine and symbol != theirs for symbol, other in names.items()):
        raise _mismatch(f"{mine!r} stands for two different symbols of the model", where)


def _renamed(specs: tuple[TensorSpec, ...], names: dict[str, str]) -> tuple[TensorSpec, ...]:
    def rename(dim: int | str) -> int | str:
        if isinstance(dim, int):
            return dim
        return re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), dim)

    return tuple(TensorSpec(spec.name, tuple(map(rename, spec.shape)), spec.dtype) for spec in specs)


def _listed(signature: Signature) -> str:
    return ", ".join(repr(spec.name) for spec in signature.inputs) or "none"


def _mismatch(reason: str, field: str) -> SignatureMismatch:
    return SignatureMismatch(f"`{field}`: {reason}.", field=field, step=0)


def read_inputs_file(path: str, signature: Signature) -> list[Array]:
    """The arrays of an ``.npz`` in the Signature's order. Raises InvalidInputsFile, SignatureMismatch."""
    arrays = read_arrays(path)
    expected = {spec.name: spec for spec in signature.inputs}
    for name in arrays:
        if name not in expected:
            raise _file_mismatch(f"the model has no input {name!r}; it has {_listed(signature)}", name)
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        if spec.name not in arrays:
            raise _file_mismatch(f"input {spec.name!r} is missing", spec.name)
        _check_array(spec, arrays[spec.name], sizes)
    return [arrays[spec.name] for spec in signature.inputs]


def read_arrays(path: str) -> dict[str, Array]:
    """The arrays of an ``.npz`` by name, without unpickling. Raises InvalidInputsFile."""
    try:
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        raise InvalidInputsFile(
            f"`inputs` is not an `.npz` archive of plain arrays ({str(error)[:200]}). Write it with numpy.savez."
        ) from error


def _check_array(spec: TensorSpec, array: Any, sizes: dict[str, int]) -> None:
    if array.dtype.name != spec.dtype:
        raise _file_mismatch(f"{spec.name!r} is {array.dtype.name}, the model takes {spec.dtype}", spec.name)
    fits = len(array.shape) == len(spec.shape)
    for dim, size in zip(spec.shape, array.shape, strict=False):
        if isinstance(dim, int):
            fits = fits and dim == size
        elif dim.isidentifier():
            fits = fits and sizes.setdefault(dim, size) == size
    if not fits:
        raise _file_mismatch(
            f"{spec.name!r} has the shape {list(array.shape)}, the model takes {list(spec.shape)}", spec.name
        )


def _file_mismatch(reason: str, name: str) -> SignatureMismatch:
    return SignatureMismatch(f"The file of example inputs: {reason}.", field="inputs", input=name, step=0)
