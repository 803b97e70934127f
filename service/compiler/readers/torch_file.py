"""Files of torch.save: an inert pickle beside raw storages, from which only plain tensors are taken."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from service.compiler.readers.archive import Archive, ArchiveLimits
from service.compiler.readers.inert_pickle import Call, Global, Persistent, read_pickle
from service.compiler.readers.refusal import damaged, shown, unsafe
from service.compiler.readers.tensors import Window, check_bools, check_window

MAX_PICKLE_BYTES = 64 << 20
MAX_WALK = 2_000_000
MAX_DEPTH = 100

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_DTYPES = frozenset(STORAGES.values()) | {"uint16", "uint32", "uint64", "complex32"}
_REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_3 = Global("torch._utils", "_rebuild_tensor_v3")
_PARAMETER = Global("torch._utils", "_rebuild_parameter")
_ORDERED = Global("collections", "OrderedDict")
_SETS = (Global("__builtin__", "set"), Global("builtins", "set"))


_UNDER_WAY = object()


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a file; `storage` names its bytes in `TorchFile.storage`."""

    storage: str
    window: Window
    is_parameter: bool = False
    requires_grad: bool = False


class TorchFile:
    """One file of torch.save. `tree` is what it holds, of plain values, records and StoredTensor."""

    def __init__(self, archive: Archive, pickle_name: str = "data.pkl", folder: str = "data") -> None:
        """Raises DamagedModel, UnsafeModel."""
        self._archive = archive
        self._folder = folder
        self._where = pickle_name
        if "byteorder" in archive and archive.read("byteorder", 16) != b"little":
            raise damaged("The file was written on a machine of another byte order")
        self._steps = 0
        # By the id of a part of the pickle: the part itself, which keeps the id its own, and what became of it.
        self._done: dict[int, tuple[Any, Any]] = {}
        self.tree = self._resolve(read_pickle(archive.read(pickle_name, MAX_PICKLE_BYTES), pickle_name), 0)
        self._done.clear()

    def storage(self, tensor: StoredTensor) -> bytes:
        """The bytes of the tensor's storage."""
        data = self._archive.read(
            f"{self._folder}/{tensor.storage}", self._archive.size(f"{self._folder}/{tensor.storage}")
        )
        check_bools(data, tensor.window.dtype, self._where)
        return data

    def _resolve(self, value: Any, depth: int) -> Any:
        """The value with tensors, OrderedDicts and sets in place of the calls that make them."""
        self._steps += 1
        if depth > MAX_DEPTH or self._steps > MAX_WALK:
            raise unsafe("The pickle is nested too deeply or too large", self._where)
        if not isinstance(value, (list, tuple, dict, Call, Persistent)):
            return value
        if id(value) in self._done:
            known = self._done[id(value)][1]
            if known is _UNDER_WAY:
                raise unsafe("The pickle has a value that contains itself", self._where)
            return known
        self._done[id(value)] = value, _UNDER_WAY
        resolved = self._resolve_container(value, depth + 1)
        self._done[id(value)] = value, resolved
        return resolved

    def _resolve_container(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return {key: self._resolve(part, depth) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._resolve(part, depth) for part in value)
        if isinstance(value, Persistent):
            raise unsafe("The pickle refers to a storage outside of a tensor", self._where)
        return self._resolve_call(value, depth)

    def _resolve_call(self, value: Call, depth: int) -> Any:
        if value.function in (_REBUILD, _REBUILD_3):
            return self._tensor(value)
        if value.function == _PARAMETER:
            return self._parameter(value, depth)
        if value.function == _ORDERED and not value.state:
            return self._ordered(value, depth)
        if value.function in _SETS and value.state is None and isinstance(value.arguments, tuple):
            items = value.arguments[0] if value.arguments and isinstance(value.arguments[0], (list, tuple)) else []
            return [self._resolve(part, depth) for part in (*items, *value.items)]
        for name in ("function", "arguments", "keywords", "state", "items"):
            setattr(value, name, self._resolve(getattr(value, name), depth))
        value.pairs = [(self._resolve(key, depth), self._resolve(part, depth)) for key, part in value.pairs]
        return value

    def _ordered(self, value: Call, depth: int) -> dict[Any, Any]:
        pairs = list(value.pairs)
        arguments = value.arguments
        if isinstance(arguments, tuple) and arguments and isinstance(arguments[0], (list, tuple)):
            pairs = [*arguments[0], *pairs]
        ordered: dict[Any, Any] = {}
        for pair in pairs:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], (str, int)):
                raise damaged("An OrderedDict has no plain keys", self._where)
            ordered[pair[0]] = self._resolve(pair[1], depth)
        return ordered

    def _parameter(self, value: Call, depth: int) -> StoredTensor:
        arguments = value.arguments
        inner = self._resolve(arguments[0], depth) if isinstance(arguments, tuple) and len(arguments) == 3 else None
        if not isinstance(inner, StoredTensor):
            raise unsafe("A parameter is made of what is no plain tensor", self._where)
        return StoredTensor(inner.storage, inner.window, True, arguments[1] is True)

    def _tensor(self, value: Call) -> StoredTensor:
        arguments = value.arguments
        if not isinstance(arguments, tuple) or len(arguments) < 5 or value.state is not None:
            raise damaged("A tensor is made of the wrong parts", self._where)
        reference, offset, sizes, strides, requires_grad = arguments[:5]
        if not isinstance(reference, Persistent):
            raise unsafe("A tensor is made of what is no storage", self._where)
        key, dtype, count = self._storage_of(reference.key)
        if value.function == _REBUILD_3:
            dtype = self._dtype(arguments[6] if len(arguments) > 6 else None)
        if dtype is None:
            raise unsafe("A tensor has no dtype", self._where)
        if type(offset) is not int or not _are_integers(sizes) or not _are_integers(strides):
            raise damaged("A tensor has sizes that are no integers", self._where)
        window = Window(dtype, tuple(sizes), tuple(strides), offset)
        size = self._archive.size(f"{self._folder}/{key}")
        if type(count) is not int or count < 0 or count > size:
            raise damaged("A storage has fewer bytes than elements", self._where)
        check_window(window, size, f"{self._folder}/{key}")
        return StoredTensor(key, window, False, requires_grad is True)

    def _storage_of(self, key: Any) -> tuple[str, str | None, Any]:
        if not isinstance(key, tuple) or len(key) != 5 or key[0] != "storage" or not isinstance(key[1], Global):
            raise unsafe("The pickle refers to something that is no storage", self._where)
        _, kind, name, device, count = key
        if not isinstance(name, str) or not name.isdecimal() or len(name) > 12:
            raise unsafe(f"A storage has the name {shown(name)}", self._where)
        if device != "cpu":
            raise damaged(
                f"A tensor lies on the device {shown(device)}. Move the model to the CPU first: model.to('cpu')",
                self._where,
            )
        if kind == Global("torch.storage", "UntypedStorage") or kind == Global("torch", "UntypedStorage"):
            return name, None, count
        if kind.module not in ("torch", "torch.storage") or kind.name not in STORAGES:
            raise unsafe(f"A tensor has a storage of the type {shown(str(kind))}", self._where)
        return name, STORAGES[kind.name], count

    def _dtype(self, value: Any) -> str:
        if not isinstance(value, Global) or value.module != "torch" or value.name not in _DTYPES:
            raise unsafe(f"A tensor has the dtype {shown(value)}", self._where)
        return value.name


def open_torch_bytes(data: bytes, limits: ArchiveLimits) -> TorchFile:
    """A file of torch.save that lies inside another. Raises DamagedModel, UnsafeModel."""
    return TorchFile(Archive(io.BytesIO(data), limits))


def _are_integers(values: Any) -> bool:
    return isinstance(values, (tuple, list)) and all(type(value) is int for value in values)
