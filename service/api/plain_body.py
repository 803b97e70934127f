"""Bodies of POST /infer beside the Open Inference Protocol's: inputs by name as nested lists, or one `.npy` file."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import orjson

from service.api.oip_body import Answer, Asked, read_outputs, timeout_of
from service.api.tensors import hold_to_signature, raw_tensor, read_inputs, write_outputs
from service.errors import InputData, InputDtype, InvalidField, JsonObject, UnknownField, nearest
from service.nouns import Signature
from service.publications import Servable
from service.ring import RawTensor

FIELDS = ("model", "inputs", "id", "parameters", "outputs")
_MAGIC = b"\x93NUMPY"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def check_fields(fields: JsonObject) -> None:
    """Raises UnknownField, InvalidField."""
    for name in fields:
        if name not in FIELDS:
            raise UnknownField(
                f"The body has an unknown field `{name[:100]}`; it takes `model` and `inputs`.",
                field=name[:100],
                nearest=nearest(name, FIELDS),
            )
    model_of(fields)
    if not isinstance(fields.get("id", ""), str):
        raise InvalidField("`id` must be a string.", field="id")
    if not isinstance(fields.get("inputs"), (dict, list)):
        raise InvalidField(
            "`inputs` must be there: an object {name: nested list} or a list of tensors.", field="inputs"
        )


def model_of(fields: JsonObject) -> str:
    """The model that a body names. Raises InvalidField."""
    model = fields.get("model")
    if not isinstance(model, str):
        raise InvalidField(
            "`model` must be the name of a published model or the id of a compilation; with a .npy body it is a query "
            "parameter.",
            field="model",
        )
    return model


def read_fields(fields: JsonObject, text: bytes, signature: Signature) -> Asked:
    """Inputs by name, from the JSON `text`. Raises as `read_inputs`, InvalidField."""
    inputs = read_inputs(fields["inputs"], signature, text)
    outputs = read_outputs(fields.get("outputs"), signature, binary=False)
    return Asked(inputs, outputs, fields.get("id"), timeout_of(fields), plain=True)


def is_array(body: bytes | memoryview) -> bool:
    """Whether a body is a file of `numpy.save`, by its first bytes."""
    return bytes(body[: len(_MAGIC)]) == _MAGIC


def read_array(body: memoryview, signature: Signature) -> Asked:
    """The one input of a model, as a `.npy` file, never unpickled. Raises InputData, InputDtype, InputShape."""
    if len(signature.inputs) != 1:
        raise InvalidField(f"A .npy body is one input; this model has {len(signature.inputs)}.", field="inputs")
    (spec,) = signature.inputs
    file = io.BytesIO(body)
    try:
        shape, by_columns, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    except (ValueError, KeyError, EOFError, TypeError) as error:
        raise InputData(f"The header of the .npy body cannot be read: {str(error)[:200]}.", input=spec.name) from error
    if dtype.name != spec.dtype:
        raise InputDtype(f"The .npy body has {dtype.name[:40]}, the model takes {spec.dtype}.", input=spec.name)
    data = body[file.tell() :]
    # In Python's integers: a product of numpy's could wrap around.
    size = dtype.itemsize
    for each in shape:
        size *= each
    if len(data) != size or min(shape, default=0) < 0:
        raise InputData(
            f"The .npy body has {len(data)} bytes of data, its header says {size} for {list(shape)}.", input=spec.name
        )
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")
    if dtype.kind == "b" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise InputData(f"The bytes of the bool input {spec.name!r} must be 0 or 1.", input=spec.name)
    inputs = hold_to_signature({spec.name: raw_tensor(array.astype(spec.dtype), spec)}, signature)
    return Asked(inputs, read_outputs(None, signature, binary=False), plain=True)


def write_answer(found: Servable, asked: Asked, outputs: list[RawTensor]) -> Answer:
    """Outputs by name as nested lists, and the id of the Compilation that gave them."""
    every: dict[str, Any] = write_outputs(outputs, found.signature)
    body: JsonObject = {"model": found.compilation.id, "outputs": {name: every[name] for name in asked.outputs}}
    if asked.id is not None:
        body["id"] = asked.id
    return Answer(orjson.dumps(body), {"Content-Type": "application/json"})
