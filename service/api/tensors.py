"""Inputs and outputs as JSON: checked against the Signature, exact in value, never a bare NaN."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401  makes numpy know bfloat16
import numpy as np
import numpy.typing as npt

from service.dimensions import evaluated, solved, symbols_of
from service.errors import (
    InputData,
    InputDtype,
    InputShape,
    JsonObject,
    MissingInput,
    UnknownInput,
    nearest,
)
from service.nouns import Dim, Signature, TensorSpec
from service.ring import RawTensor

Array = npt.NDArray[Any]

OIP_DATATYPES = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
}
OIP_NAMES = {dtype: name for name, dtype in OIP_DATATYPES.items()}
_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_RANK = 32
# Whole numbers below it are exact as doubles.
_EXACT = 2.0**53


def read_inputs(given: Mapping[str, Any], signature: Signature, text: bytes) -> list[RawTensor]:
    """The inputs of a request in the order of the Signature, given by name as nested lists; `text` is the whole JSON.

    Raises UnknownInput, MissingInput, InputShape, InputDtype, InputData.
    """
    by_name = {name: {"data": data} for name, data in given.items()}
    names = [spec.name for spec in signature.inputs]
    for name in by_name:
        if name not in names:
            raise UnknownInput(
                f"The model has no input {name[:100]!r}; its inputs are {', '.join(names)}.",
                input=name[:100],
                expected=names,
                nearest=nearest(name, names),
            )
    for name in names:
        if name not in by_name:
            raise MissingInput(f"The input {name!r} is missing; the model's inputs are {', '.join(names)}.", input=name)
    tensors = {spec.name: raw_tensor(read_tensor(by_name[spec.name], spec, text), spec) for spec in signature.inputs}
    return hold_to_signature(tensors, signature)


def raw_tensor(array: Array, spec: TensorSpec) -> RawTensor:
    """An array of the right dtype on its way to a worker."""
    return RawTensor(spec.dtype, array.shape, array.tobytes())


def hold_to_signature(tensors: Mapping[str, RawTensor], signature: Signature) -> list[RawTensor]:
    """Tensors of the right dtypes in the Signature's order. Raises MissingInput, InputShape."""
    symbols: dict[str, tuple[int, str]] = {}
    names = [spec.name for spec in signature.inputs]
    for spec in signature.inputs:
        if spec.name not in tensors:
            raise MissingInput(
                f"The input {spec.name!r} is missing; the model's inputs are {', '.join(names)}.", input=spec.name
            )
        if tensors[spec.name].shape != spec.shape:
            _check_shape(spec, tensors[spec.name].shape, symbols)
    if symbols:
        _check_ranges(_with_parts(symbols), signature)
    return [tensors[spec.name] for spec in signature.inputs]


def read_tensor(tensor: JsonObject, spec: TensorSpec, text: bytes) -> Array:
    """The `data` of a tensor in the JSON `text`. Raises InputDtype, InputShape, InputData."""
    datatype = tensor.get("datatype")
    if datatype is not None and (not isinstance(datatype, str) or OIP_DATATYPES.get(datatype) != spec.dtype):
        wanted = OIP_NAMES.get(spec.dtype, spec.dtype)
        raise InputDtype(
            f"The input {spec.name!r} was sent as {str(datatype)[:20]}, the model takes {wanted}.",
            input=spec.name,
            expected=wanted,
        )
    # One letter is looked for some times faster than a word.
    has_truth = (b"r" in text and b"true" in text) or (b"l" in text and b"false" in text)
    array = None if has_truth else _flat_floats(tensor["data"], spec)
    if array is None:
        if has_truth:
            _refuse_mixed(tensor["data"], spec)
        array = _to_array(tensor["data"], spec)
    if "shape" not in tensor or tensor["shape"] is None:
        return array
    shape = tensor["shape"]
    if not isinstance(shape, list) or len(shape) > _MAX_RANK or not all(_is_size(size) for size in shape):
        raise InputShape(
            f"The `shape` of input {spec.name!r} must be a list of up to {_MAX_RANK} sizes from 0 up.", input=spec.name
        )
    if array.ndim > 1 and array.shape != tuple(shape):
        raise InputShape(
            f"The data of input {spec.name!r} is nested as {list(array.shape)}, but its `shape` says {shape}.",
            input=spec.name,
        )
    if math.prod(shape) != array.size:
        raise InputData(
            f"The input {spec.name!r} has {array.size} numbers, but its `shape` {shape} wants {math.prod(shape)}.",
            input=spec.name,
        )
    return array.reshape(shape)


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 48


def _check_shape(spec: TensorSpec, shape: tuple[int, ...], symbols: dict[str, tuple[int, str]]) -> None:
    expected = list(spec.shape)
    if len(shape) != len(expected):
        raise InputShape(
            f"The input {spec.name!r} has rank {len(shape)} (shape {list(shape)}), the model takes rank "
            f"{len(expected)}: {expected}.",
            input=spec.name,
            expected=expected,
            got=list(shape),
        )
    for axis, (want, got) in enumerate(zip(expected, shape, strict=True)):
        size, source = _expected_size(want, got, f"axis {axis} of {spec.name!r}", symbols)
        if got != size:
            raise InputShape(
                f"The input {spec.name!r} has shape {list(shape)}, the model takes {expected}: axis {axis} must be "
                f"{size}{source}, not {got}.",
                input=spec.name,
                expected=expected,
                got=list(shape),
            )


def _with_parts(symbols: dict[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Also the symbols that are no dimension by themselves, as h of 2*h. Raises InputShape where h has no size."""
    known = {name: entry for name, entry in symbols.items() if name.isidentifier()}
    for expression, (got, where) in symbols.items():
        if expression.isidentifier():
            continue
        sizes = {name: size for name, (size, _) in known.items()}
        missing = symbols_of(expression) - set(sizes)
        if len(missing) == 1:
            (symbol,) = missing
            size = solved(expression, symbol, got, sizes)
            if size is None:
                raise InputShape(
                    f"The dimension {expression!r} ({where}) is {got}, which it is for no whole number {symbol!r}.",
                    expected=expression,
                    got=got,
                )
            known[symbol] = (size, f"of {expression!r}, {where}")
            continue
        want = evaluated(expression, sizes)
        if want is not None and want != got:
            raise InputShape(
                f"The dimension {expression!r} ({where}) must be {want}, not {got}.", expected=want, got=got
            )
    return known


def _check_ranges(symbols: dict[str, tuple[int, str]], signature: Signature) -> None:
    for symbol, (size, where) in symbols.items():
        low, high = signature.symbols.get(symbol, (0, None))
        if size < low or (high is not None and size > high):
            allowed = f"at least {low}" if high is None else f"from {low} to {high}"
            raise InputShape(
                f"The dimension {symbol!r} ({where}) is {size}; the model was exported for sizes {allowed}.",
                symbol=symbol,
                expected={"min": low, "max": high},
                got=size,
            )


def _expected_size(want: Dim, got: int, here: str, symbols: dict[str, tuple[int, str]]) -> tuple[int, str]:
    if isinstance(want, int):
        return want, ""
    size, first = symbols.setdefault(want, (got, here))
    return size, f" ({want!r} as in {first})"


def _flat_floats(data: Any, spec: TensorSpec) -> Array | None:
    """The usual case: a list of nothing but numbers (no truth values) for a float input. None for all else.

    Of numbers, those that a double has exactly or that are floats already: each is rounded once at most.
    """
    if spec.dtype not in ("float32", "float64") or not isinstance(data, list) or not data:
        return None
    try:
        # Several times as fast as `np.array`, and it takes nothing but numbers.
        array = np.frombuffer(struct.pack(f"{len(data)}d", *data))
    except (struct.error, OverflowError, TypeError):
        return None
    return array.astype(spec.dtype) if max(array.max(), -array.min()) < _EXACT else None


def _to_array(data: Any, spec: TensorSpec) -> Array:
    """`data` as an array of the Signature's dtype, without a change of any value beyond rounding to that dtype."""
    try:
        array = np.array(data)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise _out_of_range(spec)  # JSON has no infinity: a number such as 1e400 became one
        if array.dtype.kind in "UO":
            array = np.array(_replace_nonfinite(data, spec, 0))
        if array.dtype.kind == "O":
            array = array.astype(np.float64)  # integers beyond 64 bits
    except (ValueError, OverflowError) as error:
        raise InputData(
            f"The data of input {spec.name!r} is ragged or too deeply nested: all rows must have one length.",
            input=spec.name,
        ) from error
    if array.size == 0:
        return array.astype(spec.dtype)
    target = np.dtype(spec.dtype)
    allowed = {"b": "b", "i": "iu", "u": "iu"}.get(target.kind, "iuf")
    if array.dtype.kind not in allowed:
        raise InputData(
            f"The data of input {spec.name!r} are not all numbers that a {spec.dtype} can hold.",
            input=spec.name,
            expected=spec.dtype,
        )
    if target.kind in "iu":
        info = np.iinfo(target)
        if int(array.min()) < info.min or int(array.max()) > info.max:
            raise InputData(
                f"The data of input {spec.name!r} go outside the range of {spec.dtype} ({info.min} to {info.max}).",
                input=spec.name,
            )
        return array.astype(target)
    with np.errstate(over="ignore"):
        converted = array.astype(target)
    if target.kind != "b" and not np.array_equal(np.isfinite(converted), np.isfinite(array)):
        raise _out_of_range(spec)
    return converted


def _out_of_range(spec: TensorSpec) -> InputData:
    return InputData(f"The data of input {spec.name!r} go outside the range of {spec.dtype}.", input=spec.name)


def _refuse_mixed(data: Any, spec: TensorSpec) -> None:
    """numpy reads `true` among numbers as 1. Raises InputData."""
    pending = [data]
    kinds = set()
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        else:
            kinds.add(isinstance(item, bool))
    if kinds == {True, False}:
        raise InputData(f"The data of input {spec.name!r} mix true or false with numbers.", input=spec.name)


def _replace_nonfinite(data: Any, spec: TensorSpec, depth: int) -> Any:
    if isinstance(data, list) and depth <= _MAX_RANK:
        return [_replace_nonfinite(item, spec, depth + 1) for item in data]
    if isinstance(data, str) and data in _NONFINITE:
        return _NONFINITE[data]
    if isinstance(data, (int, float)):
        return data
    shown = "null" if data is None else repr(data)[:40]
    raise InputData(
        f'The data of input {spec.name!r} have {shown}; only numbers, true, false, "NaN", "Infinity" and "-Infinity" '
        "are taken.",
        input=spec.name,
    )


def write_outputs(tensors: list[RawTensor], signature: Signature) -> dict[str, Any]:
    """The outputs by name as nested lists."""
    named = zip(signature.outputs, tensors, strict=True)
    return {spec.name: _to_lists(_array_of(tensor)) for spec, tensor in named}


def _to_lists(array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    return _name_nonfinite(array.tolist())


def _name_nonfinite(value: Any) -> Any:
    if isinstance(value, list):
        return [_name_nonfinite(item) for item in value]
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def oip_data(tensor: RawTensor) -> Any:
    """The elements in C order; floats that JSON lacks as strings."""
    return _to_lists(_array_of(tensor).reshape(-1))


def _array_of(tensor: RawTensor) -> Array:
    return np.frombuffer(tensor.data, tensor.dtype).reshape(tensor.shape)
