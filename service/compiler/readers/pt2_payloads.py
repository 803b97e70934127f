"""The tensors of a `.pt2`: raw bytes and a table of windows into them, or pickles that become such."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import IO, Any

from service.compiler.readers.archive import Archive, ArchiveLimits
from service.compiler.readers.bounded_json import MAX_BYTES, parse_json
from service.compiler.readers.names import is_plain_path
from service.compiler.readers.pt2_schema import check_value
from service.compiler.readers.refusal import damaged, shown, unsafe
from service.compiler.readers.tensors import NUMBERS, SCALAR_TYPES, Window, check_bools, check_window
from service.compiler.readers.torch_file import StoredTensor, TorchFile, open_torch_bytes

# What a written entry's bytes come from: an entry of the archive that is streamed, or bytes that were decoded.
Source = str | bytes
Table = dict[str, dict[str, Any]]

_FOLDERS = {"weights": ("weight_", "weights"), "constants": ("tensor_", "constants")}


class Payloads:
    """All weights and constants of one program, checked; `write` writes them in the form without pickles."""

    def __init__(self, archive: Archive, model: str, limits: ArchiveLimits) -> None:
        """Raises DamagedModel, UnsafeModel."""
        self._archive = archive
        self._limits = limits
        self._sources: dict[str, dict[str, Source]] = {"weights": {}, "constants": {}}
        self._dtypes: dict[str, str] = {}
        self.weights = self._read(model, "weights")
        self.constants = self._read(model, "constants")

    def write(self, create: Callable[[str], IO[bytes]]) -> None:
        """Writes every entry into what `create` opens for its name."""
        for folder, table in (("weights", self.weights), ("constants", self.constants)):
            for name, source in self._sources[folder].items():
                with create(f"data/{folder}/{name}") as out:
                    for chunk in (source,) if isinstance(source, bytes) else self._archive.chunks(source):
                        out.write(chunk)
            with create(f"data/{folder}/model_{folder}_config.json") as out:
                out.write(json.dumps({"config": table}).encode())

    def _read(self, model: str, folder: str) -> Table:
        legacy = f"data/{folder}/{model}.pt"
        if legacy in self._archive:
            return self._read_legacy(legacy, folder)
        config = f"data/{folder}/{model}_{folder}_config.json"
        table: Table = check_value("PayloadConfig", parse_json(self._archive.read(config, MAX_BYTES), config), config)[
            "config"
        ]
        return {path: self._read_entry(path, meta, folder) for path, meta in table.items()}

    def _read_entry(self, path: str, meta: dict[str, Any], folder: str) -> dict[str, Any]:
        prefix = _FOLDERS[folder][0]
        name = meta["path_name"]
        if not re.fullmatch(prefix + r"\d{1,9}", name):
            raise unsafe(f"The tensor {shown(path)} is stored as {shown(name)}, which PyTorch would unpickle")
        entry = f"data/{folder}/{name}"
        if meta["use_pickle"]:
            return self._read_pickled(path, open_torch_bytes(self._archive.read(entry, 1 << 30), self._limits), folder)
        if meta["tensor_meta"] is None:
            raise damaged(f"The tensor {shown(path)} has no description")
        window = _window(meta["tensor_meta"], path)
        check_window(window, self._archive.size(entry), path)
        if window.dtype == "bool":
            for chunk in self._archive.chunks(entry):
                check_bools(chunk, "bool", path)
        self._sources[folder][name] = entry
        # torch reads all windows of an entry with the dtype of the first.
        if self._dtypes.setdefault(entry, window.dtype) != window.dtype:
            raise damaged("Two tensors of different dtypes share one storage. Clone one of them before exporting", path)
        return meta

    def _read_pickled(self, path: str, saved: TorchFile, folder: str) -> dict[str, Any]:
        if not isinstance(saved.tree, StoredTensor):
            raise unsafe(f"The tensor {shown(path)} is a pickled object, not a plain tensor")
        return self._adopt(saved.tree, saved, folder, {})

    def _read_legacy(self, entry: str, folder: str) -> Table:
        """The form of PyTorch before 2.9: one torch.save of all tensors by name."""
        if self._archive.size(entry) == 0:
            return {}
        saved = open_torch_bytes(self._archive.read(entry, self._limits.unpacked_bytes), self._limits)
        if not isinstance(saved.tree, dict):
            raise unsafe("The tensors are no dict of plain tensors", entry)
        places: dict[tuple[str, str], str] = {}
        table: Table = {}
        for path, tensor in saved.tree.items():
            if not is_plain_path(path) or not isinstance(tensor, StoredTensor):
                raise unsafe(f"The tensor {shown(path)} is a pickled object, not a plain tensor", entry)
            table[path] = self._adopt(tensor, saved, folder, places)
        return table

    def _adopt(
        self, tensor: StoredTensor, saved: TorchFile, folder: str, places: dict[tuple[str, str], str]
    ) -> dict[str, Any]:
        """The table's line for a tensor that was pickled; its storage is kept once, for all tensors that share it."""
        key = (tensor.storage, tensor.window.dtype)
        if key not in places:
            # Far above the numbers of entries that are taken as they are, so that no name is used twice.
            places[key] = f"{_FOLDERS[folder][0]}{100_000_000 + len(self._sources[folder])}"
            self._sources[folder][places[key]] = saved.storage(tensor)
        window = tensor.window
        return {
            "path_name": places[key],
            "is_param": tensor.is_parameter and folder == "weights",
            "use_pickle": False,
            "tensor_meta": {
                "dtype": NUMBERS[window.dtype],
                "sizes": [{"as_int": size} for size in window.sizes],
                "requires_grad": tensor.requires_grad,
                "device": {"type": "cpu", "index": None},
                "strides": [{"as_int": stride} for stride in window.strides],
                "storage_offset": {"as_int": window.offset},
                "layout": 7,
            },
        }


def _window(meta: dict[str, Any], path: str) -> Window:
    def integers(values: list[dict[str, Any]]) -> tuple[int, ...]:
        if not all("as_int" in value for value in values):
            raise damaged(f"The tensor {shown(path)} has a size that is no number")
        return tuple(value["as_int"] for value in values)

    (offset,) = integers([meta["storage_offset"]])
    return Window(SCALAR_TYPES[meta["dtype"]][0], integers(meta["sizes"]), integers(meta["strides"]), offset)
