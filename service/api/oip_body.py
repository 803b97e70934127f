"""Bodies of the Open Inference Protocol v2 with the binary tensor extension: read, checked, written.

The protocol: github.com/kserve/open-inference-protocol; the extension is Triton's, "extension_binary_data".
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from service.api.tensors import (
    OIP_DATATYPES,
    OIP_NAMES,
    hold_to_signature,
    oip_data,
    raw_tensor,
    read_tensor,
)
from service.api.upload import too_large
from service.errors import InputData, InputDtype, InputShape, InvalidField, JsonObject, UnknownField
from service.nouns import Signature, TensorSpec
from service.ring import ITEM_BYTES, RawTensor
from service.serving_errors import UnsupportedEncoding

HEADER_LENGTH = "Inference-Header-Content-Length"
# Only as raw bytes: JSON has no way to write them that all clients agree on.
BINARY_ONLY = ("float16", "bfloat16")

# `model_name` is what kserve's client adds; the path has said it already.
_FIELDS = ("id", "inputs", "outputs", "parameters", "model_name", "model_version")
_INPUT_FIELDS = ("name", "shape", "datatype", "data", "parameters")
# What is longer than some days is as good as none.
_LONGEST_TIMEOUT_US = 10**12
_MAX_ANSWERS = 64
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


@dataclass(slots=True)
class Asked:
    """What a request asks for: inputs in the Signature's order, and the wanted outputs by name.

    `outputs` says of each whether it is to come as raw bytes. `plain` is POST /infer's own form. `plan` is what was
    known of it before it came.
    """

    inputs: list[RawTensor]
    outputs: dict[str, bool]
    id: str | None = None
    timeout_us: int | None = None
    plain: bool = False
    plan: Plan | None = None


@dataclass(slots=True)
class Answer:
    """A body and what its headers say of it, but for its length; `lines` are these headers, as they are sent."""

    body: bytes
    headers: dict[str, str]
    lines: bytes = b""


def inflate(body: bytes | memoryview, encoding: str | None, limit: int) -> bytes | memoryview:
    """The body without its Content-Encoding. Raises UnsupportedEncoding, BodyTooLarge."""
    name = (encoding or "identity").strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _WINDOWS:
        raise UnsupportedEncoding(f"`Content-Encoding: {name[:40]}` is not known here; gzip and deflate are.")
    decoder = zlib.decompressobj(_WINDOWS[name])
    try:
        plain = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise UnsupportedEncoding(f"The body is not {name}, as its Content-Encoding says: {error}.") from error
    if len(plain) > limit:
        raise too_large("The body without its encoding", limit)
    if not decoder.eof or decoder.unused_data:
        raise UnsupportedEncoding(f"The body is not one whole {name} stream.")
    return plain


def split(body: bytes | memoryview, header_length: str | None) -> tuple[bytes, memoryview]:
    """The JSON part, and the raw bytes after it. Raises InvalidField."""
    view = memoryview(body)
    json_bytes, raw = view, view[:0]
    if header_length is not None:
        if not header_length.isascii() or not header_length.isdecimal() or int(header_length) > len(view):
            raise InvalidField(
                f"`{HEADER_LENGTH}: {header_length[:40]}` must be the number of bytes of the JSON part, at most the "
                f"{len(view)} of the body.",
                field=HEADER_LENGTH,
            )
        json_bytes, raw = view[: int(header_length)], view[int(header_length) :]
    return bytes(json_bytes), raw


class Plan:
    """How to read requests whose JSON part is the same to the byte, as that of one client is, and all inputs raw.

    Made of one that was read with all checks; what depends on the raw bytes is checked each time.
    """

    def __init__(self, fields: JsonObject, asked: Asked, signature: Signature) -> None:
        """`asked` was read from `fields`, which `is_planned`."""
        ends: dict[str, tuple[int, int]] = {}
        self._size = 0
        for tensor in fields["inputs"]:
            size = tensor["parameters"]["binary_data_size"]
            ends[tensor["name"]] = (self._size, self._size + size)
            self._size += size
        self._inputs = [
            (spec, tensor.shape, *ends[spec.name]) for spec, tensor in zip(signature.inputs, asked.inputs, strict=True)
        ]
        self._asked = asked
        self._is_raw = all(asked.outputs.values())
        names = [spec.name for spec in signature.outputs]
        self._wanted = [names.index(name) for name in asked.outputs]
        # The JSON part of answers, their headers and these as they are sent, by the shapes of the outputs.
        self._answers: dict[Any, tuple[bytes, dict[str, str], bytes]] = {}

    @staticmethod
    def is_planned(fields: JsonObject) -> bool:
        """Whether all inputs of a request that was read are raw."""
        inputs = fields.get("inputs")
        return isinstance(inputs, list) and all("data" not in tensor for tensor in inputs)

    def read(self, raw: memoryview) -> Asked | None:
        """The request with these raw bytes; None where there are too few or too many. Raises InputData."""
        if len(raw) != self._size:
            return None
        asked = self._asked
        inputs = [_raw_input(raw[start:end], spec, shape) for spec, shape, start, end in self._inputs]
        return Asked(inputs, asked.outputs, asked.id, asked.timeout_us, False, self)

    def answer(self, tensors: list[RawTensor]) -> Answer | None:
        """The answer, where one with outputs of these shapes was written before (`keep`)."""
        known = self._answers.get(_shapes(tensors))
        if known is None:
            return None
        text, headers, lines = known
        if len(self._wanted) == 1:
            return Answer(text + tensors[self._wanted[0]].data, headers, lines)
        return Answer(b"".join([text, *[tensors[at].data for at in self._wanted]]), headers, lines)

    def keep(self, tensors: list[RawTensor], text: bytes, headers: dict[str, str]) -> None:
        """Notes what an answer with outputs of these shapes starts with: of one artifact, as a plan is kept with it."""
        if self._is_raw and len(self._answers) < _MAX_ANSWERS:
            self._answers[_shapes(tensors)] = (text, headers, lines_of(headers))


def _shapes(tensors: list[RawTensor]) -> Any:
    return tensors[0].shape if len(tensors) == 1 else tuple([tensor.shape for tensor in tensors])


def read_whole_body(raw: memoryview, signature: Signature) -> Asked:
    """A body without JSON, which is the one input; its answer comes as raw bytes too. Raises as `read_fields`."""
    return Asked([_whole_body(raw, signature)], read_outputs(None, signature, binary=True))


def read_fields(
    fields: JsonObject, text: bytes, raw: memoryview, signature: Signature, *, has_raw: bool, strict: bool
) -> Asked:
    """A request for a model with that Signature, from its JSON `text` and the raw bytes after that.

    Not `strict`, as POST /infer has it: `shape` and `datatype` may be left out.

    Raises InvalidField, UnknownField, UnknownInput, MissingInput, InputShape, InputDtype, InputData.
    """
    if strict:
        _check_fields(fields)
    parameters = _parameters(fields, "parameters")
    given = fields.get("inputs")
    if not isinstance(given, list) or not given:
        raise InvalidField("`inputs` must be a list of tensors, and not an empty one.", field="inputs")
    tensors: dict[str, RawTensor] = {}
    offset = 0
    for index, tensor in enumerate(given):
        where = f"inputs[{index}]"
        spec = _spec_of(tensor, where, signature, tensors)
        if "data" in tensor:
            read = _read_data(tensor, where, spec, text, strict=strict)
        else:
            read, offset = _read_raw(tensor, where, spec, raw if has_raw else None, offset, strict=strict)
        tensors[spec.name] = read
    if offset != len(raw):
        raise InputData(f"{len(raw) - offset} bytes are left after the last tensor; the body must end with it.")
    inputs = hold_to_signature(tensors, signature)
    default = _flag(parameters, "binary_data_output", "parameters")
    wanted = read_outputs(fields.get("outputs"), signature, binary=bool(default))
    return Asked(inputs, wanted, fields.get("id"), timeout_of(fields))


def _check_fields(fields: JsonObject) -> None:
    for name in fields:
        if name not in _FIELDS:
            raise UnknownField(f"The request has an unknown field `{name[:100]}`.", field=name[:100])
    if not isinstance(fields.get("id", ""), str):
        raise InvalidField("`id` must be a string.", field="id")


def _spec_of(tensor: Any, where: str, signature: Signature, known: dict[str, RawTensor]) -> TensorSpec:
    if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
        raise InvalidField(f"`{where}` must be an object with a `name`, `shape` and `datatype`.", field=where)
    for key in tensor:
        if key not in _INPUT_FIELDS:
            raise UnknownField(f"`{where}` has an unknown field `{key[:100]}`.", field=f"{where}.{key[:100]}")
    name = tensor["name"]
    if name in known:
        raise InvalidField(f"The input {name[:100]!r} was sent twice.", field=where)
    for spec in signature.inputs:
        if spec.name == name:
            return spec
    names = ", ".join(spec.name for spec in signature.inputs)
    raise InvalidField(f"The model has no input {name[:100]!r}; its inputs are {names}.", field=f"{where}.name")


def _check_datatype(tensor: JsonObject, spec: TensorSpec, *, strict: bool) -> None:
    datatype = tensor.get("datatype")
    is_missing = not strict and datatype is None
    if not is_missing and (not isinstance(datatype, str) or OIP_DATATYPES.get(datatype) != spec.dtype):
        raise InputDtype(
            f"The `datatype` of input {spec.name!r} must be {OIP_NAMES[spec.dtype]}, not {str(datatype)[:40]}.",
            input=spec.name,
        )


def _read_data(tensor: JsonObject, where: str, spec: TensorSpec, text: bytes, *, strict: bool) -> RawTensor:
    _check_datatype(tensor, spec, strict=strict)
    if strict:
        _shape_of(tensor, spec)
        if spec.dtype in BINARY_ONLY:
            raise InputDtype(f"{OIP_NAMES[spec.dtype]} is sent as raw bytes only: `binary_data_size`.", input=spec.name)
    if _parameters(tensor, f"{where}.parameters").get("binary_data_size") is not None:
        raise InvalidField(f"`{where}` has both `data` and `binary_data_size`.", field=where)
    return raw_tensor(read_tensor(tensor, spec, text), spec)


def _read_raw(
    tensor: JsonObject, where: str, spec: TensorSpec, raw: memoryview | None, offset: int, *, strict: bool
) -> tuple[RawTensor, int]:
    """The input at an offset of the raw bytes, if there are any; and where it ends."""
    _check_datatype(tensor, spec, strict=strict)
    size = _parameters(tensor, f"{where}.parameters").get("binary_data_size")
    if size is None:
        raise InvalidField(f"`{where}` has neither `data` nor `parameters.binary_data_size`.", field=where)
    shape = _shape_of(tensor, spec)
    if raw is None:
        raise InvalidField(
            f"`{where}` has a `binary_data_size`, and the header {HEADER_LENGTH} is missing.", field=where
        )
    wanted = math.prod(shape) * ITEM_BYTES[spec.dtype]
    if not isinstance(size, int) or isinstance(size, bool) or size != wanted:
        raise InputData(
            f"The input {spec.name!r} of shape {shape} has {wanted} bytes, but its `binary_data_size` is {size}.",
            input=spec.name,
        )
    if offset + size > len(raw):
        raise InputData(f"The body ends {offset + size - len(raw)} bytes before input {spec.name!r} does.")
    return _raw_input(raw[offset : offset + size], spec, tuple(shape)), offset + size


def _shape_of(tensor: JsonObject, spec: TensorSpec) -> list[int]:
    shape = tensor.get("shape")
    if not isinstance(shape, list) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape
    ):
        raise InputShape(f"The `shape` of input {spec.name!r} must be a list of sizes from 0 up.", input=spec.name)
    return shape


def _raw_input(data: memoryview, spec: TensorSpec, shape: tuple[int, ...]) -> RawTensor:
    if spec.dtype == "bool" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise InputData(f"The bytes of the BOOL input {spec.name!r} must be 0 or 1.", input=spec.name)
    return RawTensor(spec.dtype, shape, data)


def _whole_body(raw: memoryview, signature: Signature) -> RawTensor:
    """A header length of 0: the body is the one input. One dimension that is a symbol follows from the bytes."""
    if len(signature.inputs) != 1:
        raise InvalidField(
            f"A body without JSON is for models of one input; this one has {len(signature.inputs)}.",
            field=HEADER_LENGTH,
        )
    (spec,) = signature.inputs
    known = math.prod(size for size in spec.shape if isinstance(size, int)) * ITEM_BYTES[spec.dtype]
    symbols = [size for size in spec.shape if not isinstance(size, int)]
    count, rest = divmod(len(raw), known) if known else (0, len(raw))
    if rest or len(symbols) > 1 or (not symbols and count != 1 and known):
        raise InputData(f"{len(raw)} bytes are no {OIP_NAMES[spec.dtype]} tensor of shape {list(spec.shape)}.")
    shape = tuple(size if isinstance(size, int) else count for size in spec.shape)
    return hold_to_signature({spec.name: _raw_input(raw, spec, shape)}, signature)[0]


def read_outputs(given: Any, signature: Signature, *, binary: bool) -> dict[str, bool]:
    """The wanted outputs by name: whether each is to come as raw bytes. Raises InvalidField."""
    names = [spec.name for spec in signature.outputs]
    if given is None:
        wanted = dict.fromkeys(names, binary)
    else:
        wanted = {}
        if not isinstance(given, list):
            raise InvalidField("`outputs` must be a list of objects with a `name`.", field="outputs")
        for index, output in enumerate(given):
            where = f"outputs[{index}]"
            name = output.get("name") if isinstance(output, dict) else None
            if name not in names or name in wanted:
                raise InvalidField(f"`{where}` must name one of {', '.join(names)}, each once.", field=where)
            own = _parameters(output, f"{where}.parameters")
            if own.get("classification"):
                raise InvalidField("`classification` is not offered.", field=f"{where}.parameters.classification")
            flag = _flag(own, "binary_data", f"{where}.parameters")
            wanted[str(name)] = binary if flag is None else flag
        wanted = wanted or dict.fromkeys(names, binary)
    for spec in signature.outputs:
        if spec.dtype in BINARY_ONLY and wanted.get(spec.name) is False:
            raise InvalidField(
                f"The output {spec.name!r} is {OIP_NAMES[spec.dtype]}, which is sent as raw bytes only: ask for "
                "`binary_data` or `binary_data_output`.",
                field="outputs",
            )
    return wanted


def _parameters(holder: JsonObject, where: str) -> JsonObject:
    parameters = holder.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidField(f"`{where}` must be an object.", field=where)
    return parameters or {}


def _flag(parameters: JsonObject, name: str, where: str) -> bool | None:
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidField(f"`{where}.{name}` must be true or false.", field=f"{where}.{name}")
    return value


def timeout_of(fields: JsonObject) -> int | None:
    """`parameters.timeout` in microseconds, as Triton has it; 0 is none. Raises InvalidField."""
    value = _parameters(fields, "parameters").get("timeout")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise InvalidField("`parameters.timeout` must be a whole number of µs.", field="parameters.timeout")
    return value if value and value < _LONGEST_TIMEOUT_US else None


def write_answer(
    name: str, version: str, asked: Asked, tensors: list[RawTensor], signature: Signature, artifact: str | None
) -> Answer:
    """The answer to a request: its wanted outputs, in the order in which they were asked for.

    `artifact` is the id of the Compilation that answered, where that is to be told.
    """
    by_name = {spec.name: tensor for spec, tensor in zip(signature.outputs, tensors, strict=True)}
    outputs, chunks = [], []
    for wanted, binary in asked.outputs.items():
        tensor = by_name[wanted]
        output: JsonObject = {"name": wanted, "datatype": OIP_NAMES[tensor.dtype], "shape": tensor.shape}
        if binary:
            output["parameters"] = {"binary_data_size": len(tensor.data)}
            chunks.append(tensor.data)
        else:
            output["data"] = oip_data(tensor)
        outputs.append(output)
    head: JsonObject = {"model_name": name, "model_version": version, "outputs": outputs}
    if artifact is not None:
        head["model"] = artifact
    if asked.id is not None:
        head["id"] = asked.id
    text = orjson.dumps(head)
    if not any(asked.outputs.values()):
        return Answer(text, {"Content-Type": "application/json"})
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    if asked.plan is not None:
        asked.plan.keep(tensors, text, headers)
    return Answer(b"".join([text, *chunks]), headers)


def lines_of(headers: Mapping[str, str]) -> bytes:
    """Headers as they are sent."""
    return b"".join(f"{name.lower()}: {value}\r\n".encode("latin-1") for name, value in headers.items())


def deflated(answer: Answer, accept: str) -> Answer:
    """The answer in the first encoding of gzip and deflate that the caller takes, where that is worth while."""
    taken = [part.partition(";")[0].strip().lower() for part in accept.split(",") if "q=0" not in part.replace(" ", "")]
    name = next((each for each in taken if each in _WINDOWS), None)
    if name is None or len(answer.body) < 1024:
        return answer
    coder = zlib.compressobj(1, zlib.DEFLATED, _WINDOWS[name])
    body = coder.compress(answer.body) + coder.flush()
    return Answer(body, {**answer.headers, "Content-Encoding": name})
