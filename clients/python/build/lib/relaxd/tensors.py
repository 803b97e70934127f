"""numpy arrays as Open Inference Protocol tensors in JSON, and as the .npz of example inputs."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from relaxd.nouns import TensorSpec

Array = NDArray[Any]

_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
}
# numpy has no bfloat16 of its own (the package ml_dtypes adds it); float32 holds every value of it.
_DTYPES = {datatype: np.dtype("float32" if datatype == "BF16" else name) for name, datatype in _DATATYPES.items()}


def as_array(value: ArrayLike, spec: TensorSpec | None) -> Array:
    """`value` as an array. What has a dtype keeps it; lists and numbers take the dtype of `spec` if that loses nothing.

    Values that would change (1.5 as int64, 300 as uint8, 1e300 as float32) stay as numpy reads them, so that the
    server refuses the dtype instead of computing with other numbers. Rounding to a narrower float is not a change.
    """
    array = np.asarray(value)
    if spec is None or hasattr(value, "dtype") or array.dtype.name not in _DATATYPES or spec.dtype not in _DATATYPES:
        return array
    wanted = _DTYPES[_DATATYPES[spec.dtype]]
    if not np.can_cast(array.dtype, wanted, "same_kind"):
        return array
    with np.errstate(over="ignore"):
        cast = array.astype(wanted)
    lossless = np.array_equal(np.isfinite(cast), np.isfinite(array)) if wanted.kind == "f" else (cast == array).all()
    return cast if lossless else array


def name_inputs(inputs: Any, specs: Sequence[TensorSpec] | None) -> dict[str, Array]:
    """The arrays of an inference by name. One bare array is for a model with one input, whose name `specs` has.

    Raises ValueError when a bare array is given for a model with more inputs.
    """
    if isinstance(inputs, Mapping):
        known = {spec.name: spec for spec in specs or ()}
        return {str(name): as_array(value, known.get(name)) for name, value in inputs.items()}
    if specs is None or len(specs) != 1:
        names = ", ".join(spec.name for spec in specs or ())
        raise ValueError(f"one array was given, but the model has the inputs {names or '(none)'}: give a dict by name")
    return {specs[0].name: as_array(inputs, specs[0])}


def needs_signature(inputs: Any) -> bool:
    """Whether `name_inputs` needs specs: a bare array lacks the name, a list lacks the dtype."""
    return not isinstance(inputs, Mapping) or not all(hasattr(value, "dtype") for value in inputs.values())


def encode_inference(model: str, arrays: Mapping[str, Array]) -> bytes:
    """The body of POST /infer. Raises TypeError for a dtype that the protocol does not have."""
    tensors = [_encode(name, array) for name, array in arrays.items()]
    return json.dumps({"model": model, "inputs": tensors}, separators=(",", ":"), allow_nan=False).encode()


def _encode(name: str, array: Array) -> dict[str, Any]:
    datatype = _DATATYPES.get(array.dtype.name)
    if datatype is None:
        raise TypeError(f"input {name!r} has dtype {array.dtype}; what can be sent: {', '.join(_DATATYPES)}")
    # tolist gives Python numbers, which JSON writes exactly, also int64 above 2**53.
    numbers = array.astype(_DTYPES[datatype], copy=False)
    data = numbers.ravel().tolist()
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        data = [value if math.isfinite(value) else _spelled(value) for value in data]
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": data}


def _spelled(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def decode_outputs(answer: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of an answer to POST /infer, with the dtypes and shapes it names. Raises KeyError, ValueError."""
    return {str(tensor["name"]): _decode(tensor) for tensor in answer["outputs"]}


def _decode(tensor: Mapping[str, Any]) -> Array:
    # numpy reads the strings NaN, Infinity and -Infinity into a float array by itself.
    return np.array(tensor["data"], dtype=_DTYPES[tensor["datatype"]]).reshape(tensor["shape"])


def encode_examples(arrays: Mapping[str, ArrayLike]) -> bytes:
    """An .npz of the arrays. Raises ValueError for object arrays, which an .npz would hold as a pickle.

    Not `numpy.savez`: that takes the names as keywords, so an input named ``file`` would be an error.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(value), allow_pickle=False)
    return buffer.getvalue()
