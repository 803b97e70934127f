"""A TorchScript archive, checked before PyTorch sees it and written anew with only what was checked.

TorchScript is a program: loading compiles it and running it calls its operators. The gate bounds what is unpacked,
lets the code name only operators that compute, and the pickles only tensors, plain values and the archive's own
classes. It narrows what a file can ask for; the boundary is the process in which it is then loaded.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler.readers.archive import Archive, ArchiveLimits
from service.compiler.readers.inert_pickle import Call, Global, read_pickle
from service.compiler.readers.refusal import damaged, shown, unsafe
from service.compiler.readers.script_code import check_code, declared_names, parse_code
from service.compiler.readers.script_sources import ScriptSources
from service.compiler.readers.tensors import ITEM_BYTES
from service.compiler.readers.torch_file import STORAGES, StoredTensor, TorchFile

MAX_CODE_BYTES = 16 << 20
MAX_DEBUG_BYTES = 32 << 20
_CODE = re.compile(r"code/(__torch__(?:/[A-Za-z0-9_]+)*)\.py")
_RECORD = re.compile(r"(data|constants)/\d{1,9}")
# Written by PyTorch beside the model, not needed to load it.
_LEFT_OUT = re.compile(
    r"(extra/.*|\.data/.*|\.format_version|\.storage_alignment|traced_inputs(\.pkl|/\d+)|"
    r"code/__torch__(/[A-Za-z0-9_]+)*\.py\.debug_pkl|bytecode\.pkl|mobile_debug_handles\.pkl)"
)
_LISTS = frozenset(f"build_{kind}list" for kind in ("int", "double", "bool", "tensor")) | {
    "restore_type_tag",
    "build_tensor_from_id",
}


@dataclass(frozen=True)
class TracedInput:
    """The shape and dtype with which a module was traced."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ScriptFile:
    """What was learnt beside the clean file: where its code comes from, and with what it was traced, if it was."""

    sources: ScriptSources
    traced: tuple[TracedInput, ...] | None = None
    classes: frozenset[str] = field(default_factory=frozenset)


def rewrite_torchscript(source: Path, target: Path, limits: ArchiveLimits) -> ScriptFile:
    """Checks the file at `source` and writes what was checked to `target`. Raises DamagedModel, UnsafeModel."""
    with source.open("rb") as file, Archive(file, limits) as archive:
        _check_names(archive)
        code = _read_code(archive)
        trees = {name: parse_code(text, name) for name, text in code.items()}
        declared = frozenset().union(*map(declared_names, trees.values()))
        classes = frozenset().union(*(check_code(tree, name, declared) for name, tree in trees.items()))
        for pickle_name, folder in (("data.pkl", "data"), ("constants.pkl", "constants")):
            _check_tree(TorchFile(archive, pickle_name, folder).tree, pickle_name, classes, [2_000_000], 0)
        sources = ScriptSources({name: (text, _debug(archive, name)) for name, text in code.items()})
        _write(archive, target)
        return ScriptFile(sources, _traced(archive), classes)


def _check_names(archive: Archive) -> None:
    for name in archive.names:
        if name in ("data.pkl", "constants.pkl", "version", "byteorder"):
            continue
        if not (_CODE.fullmatch(name) or _RECORD.fullmatch(name) or _LEFT_OUT.fullmatch(name)):
            raise damaged("The archive has an entry that no TorchScript file has", shown(name))
    if "byteorder" in archive and archive.read("byteorder", 16) != b"little":
        raise damaged("The archive was written on a machine of another byte order")
    if not re.fullmatch(rb"\d{1,3}\n?", _version(archive)):
        raise damaged("The archive has no version")


def _version(archive: Archive) -> bytes:
    """The file format's version, from the place where PyTorch looks first."""
    return archive.read(".data/version" if ".data/version" in archive else "version", 16)


def _read_code(archive: Archive) -> dict[str, str]:
    code: dict[str, str] = {}
    total = 0
    for name in archive.names:
        if not _CODE.fullmatch(name):
            continue
        total += archive.size(name)
        if total > MAX_CODE_BYTES:
            raise unsafe(f"The archive has more than {MAX_CODE_BYTES} bytes of code")
        try:
            code[name] = archive.read(name, MAX_CODE_BYTES).decode("ascii")
        except UnicodeDecodeError as error:
            raise damaged(
                "The code has a name with other characters than ASCII, which PyTorch itself cannot load from "
                "TorchScript. Rename it in the model",
                name,
            ) from error
    if not code:
        raise damaged("The archive has no code")
    return code


def _debug(archive: Archive, name: str) -> Any:
    """The table of source lines of a code file, or None: it is a convenience."""
    debug = f"{name}.debug_pkl"
    if debug not in archive or archive.size(debug) > MAX_DEBUG_BYTES:
        return None
    try:
        return read_pickle(archive.read(debug, MAX_DEBUG_BYTES), debug)
    except Exception:  # noqa: BLE001  whatever is wrong with it, the model is whole without it
        return None


def _check_tree(value: Any, where: str, classes: frozenset[str], budget: list[int], depth: int) -> None:
    """Raises when a pickle holds more than plain values, tensors and objects of the archive's own classes."""
    budget[0] -= 1
    if budget[0] < 0 or depth > 200:
        raise unsafe("The pickle is nested too deeply or too large", where)
    for part in _parts(value, where, classes):
        _check_tree(part, where, classes, budget, depth + 1)


def _parts(value: Any, where: str, classes: frozenset[str]) -> list[Any]:
    """What a value consists of, after it has been checked itself."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, Call):
        _check_call(value, where, classes)
        return [value.arguments, value.state, value.items, value.pairs]
    if isinstance(value, Global):
        raise unsafe(f"The pickle refers to {shown(str(value))}", where)
    if not isinstance(value, (StoredTensor, int, float, bool, str, bytes, type(None))):
        raise unsafe(f"The pickle has a {type(value).__name__}", where)
    return []


def _check_call(value: Call, where: str, classes: frozenset[str]) -> None:
    function = value.function
    if not isinstance(function, Global) or value.keywords is not None:
        raise unsafe("The pickle calls what is no class", where)
    own = str(function) in classes
    if function.module == "torch.jit._pickle" and function.name in _LISTS and function.name != "build_tensor_from_id":
        return
    if function == Global("torch", "device") and value.arguments == ("cpu",):
        return
    if not own:
        raise unsafe(f"The pickle makes a {shown(str(function))}, which is no class of the archive", where)


def _write(archive: Archive, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as clean:
        for name in archive.names:
            if _LEFT_OUT.fullmatch(name) or name == "version":
                continue
            with clean.open(zipfile.ZipInfo(f"model/{name}"), "w", force_zip64=True) as out:
                for chunk in archive.chunks(name):
                    out.write(chunk)
        for name in ("version", ".data/version"):
            clean.writestr(zipfile.ZipInfo(f"model/{name}"), _version(archive))


def _traced(archive: Archive) -> tuple[TracedInput, ...] | None:
    """The shapes of the inputs of `torch.jit.trace`, which writes them without their values."""
    if "traced_inputs.pkl" not in archive:
        return None
    try:
        tree = _plain(read_pickle(archive.read("traced_inputs.pkl", MAX_DEBUG_BYTES), "traced_inputs.pkl"))
        inputs = [_traced_input(value) for value in _plain(tree["forward"])]
    except Exception:  # noqa: BLE001  whatever is wrong with them, they can be declared in the request
        return None
    return None if None in inputs else tuple(each for each in inputs if each is not None)


def _plain(value: Any) -> Any:
    """The value without the type tags that TorchScript puts around its containers."""
    if isinstance(value, Call) and value.function == Global("torch.jit._pickle", "restore_type_tag"):
        return _plain(value.arguments[0])
    return value


def _traced_input(value: Any) -> TracedInput | None:
    value = _plain(value)
    if not isinstance(value, Call) or value.function != Global("torch._utils", "_rebuild_tensor_v2"):
        return None
    storage, _, sizes = value.arguments[:3]
    dtype = STORAGES.get(storage.key[1].name)
    fits = dtype in ITEM_BYTES and all(type(size) is int and 0 <= size < 1 << 31 for size in sizes)
    return TracedInput(tuple(sizes), dtype) if fits and dtype is not None else None
