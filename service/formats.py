"""What kind of file an upload is, by its content and without loading any of it."""

from __future__ import annotations

import zipfile
from pathlib import Path

from service.conversions import foreign
from service.errors import DamagedModel, EmptyModel, InvalidField
from service.nouns import ModelFormat
from service.pickles import PickleFacts, pickle_facts

MAX_ENTRIES = 200_000
_BROKEN = (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError, KeyError)


def recognise(path: Path, wanted: str = "auto") -> ModelFormat:
    """The format of the file. `wanted` is what the request says of it.

    Raises EmptyModel, DamagedModel, UnsupportedFormat, InvalidField.
    """
    with path.open("rb") as file:
        head = file.read(4096)
    if not head:
        raise EmptyModel("The `model` part has no bytes. With curl, send the file's content by `-F model=@FILE`.")
    found = _recognise_zip(path) if head.startswith(b"PK") else None
    if found is None:
        raise foreign(_kind_of_plain_file(head))
    if wanted not in ("auto", found.value):
        raise InvalidField(
            f"`format` says {wanted!r}, but the file is {_NAMES[found]}. Leave `format` out, or send the other file.",
            field="format",
            found=found.value,
        )
    return found


_NAMES = {
    ModelFormat.EXPORTED_PROGRAM: "an archive of torch.export.save (exported_program)",
    ModelFormat.TORCHSCRIPT: "a TorchScript archive (torchscript)",
    ModelFormat.FX: "a saved FX graph module (fx)",
}


def is_npz(path: Path) -> bool:
    """Whether the file is a zip archive of ``.npy`` files, by its directory."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except _BROKEN:
        return False
    return len(names) <= MAX_ENTRIES and all(name.endswith(".npy") for name in names)


def _recognise_zip(path: Path) -> ModelFormat:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) > MAX_ENTRIES:
                raise DamagedModel(f"The archive lists {len(names)} files; a model has at most {MAX_ENTRIES}.")
            if names and min(info.header_offset for info in archive.infolist()) > 0:
                # Cut off behind an archive that lies inside it, the file would be taken for that one.
                raise zipfile.BadZipFile("its directory belongs to an archive inside it")
            return _recognise_archive(archive, names)
    except _BROKEN as error:
        raise DamagedModel(
            f"The file starts as a zip archive (as a .pt2 is) but cannot be read as one: {error}. "
            "It may be cut short: compare its size, save it again, send it again."
        ) from error


def _recognise_archive(archive: zipfile.ZipFile, names: list[str]) -> ModelFormat:
    root = names[0].split("/", 1)[0] if names else ""
    inner = {name.split("/", 1)[1] for name in names if "/" in name}
    if "archive_format" in inner:
        with archive.open(f"{root}/archive_format") as file:
            is_pt2 = file.read(16) == b"pt2"
        if is_pt2 and any(name.startswith("models/") and name.endswith(".json") for name in inner):
            return ModelFormat.EXPORTED_PROGRAM
        if is_pt2:
            raise DamagedModel(
                "The .pt2 archive has no models/*.json: it holds no exported program. Make one: `program = "
                "torch.export.export(model.eval(), (example_input,)); torch.export.save(program, 'model.pt2')`."
            )
    if "serialized_exported_program.json" in names:
        raise foreign("old_pt2")
    if any(name.startswith("code/") for name in inner) and "constants.pkl" in inner:
        return ModelFormat.TORCHSCRIPT
    if any(name.startswith(".data/") for name in inner) and "data.pkl" not in inner:
        raise foreign("package", _resource(inner))
    if "data.pkl" in inner:
        with archive.open(f"{root}/data.pkl") as file:
            facts = pickle_facts(file)
        if facts.is_graph_module:
            return ModelFormat.FX
        raise foreign(_kind_of_saved(facts), facts.class_name)
    raise foreign("keras" if "config.json" in names and "metadata.json" in names else "zip")


def _kind_of_saved(facts: PickleFacts) -> str:
    if facts.class_name is not None:
        return "module"
    return "cuda_checkpoint" if facts.devices and "cpu" not in facts.devices else "state_dict"


def _resource(inner: set[str]) -> str | None:
    """The first pickled object of a torch.package archive, as the arguments that load it."""
    pickles = sorted(name for name in inner if name.endswith(".pkl") and "/" in name)
    if not pickles:
        return None
    package, _, resource = pickles[0].rpartition("/")
    return f"{package.replace('/', '.')!r}, {resource!r}"


def _kind_of_plain_file(head: bytes) -> str:
    kinds = [
        ("keras", head.startswith(b"\x89HDF\r\n")),
        ("safetensors", head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 27),
        ("old_torch_save", head.startswith(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19")),
        ("pickle", head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05" and len(head) > 1),
        ("gguf", head.startswith(b"GGUF")),
        ("tflite", head[4:8] == b"TFL3"),
        ("onnx", head[:1] == b"\x08" and b"\x12" in head[:6]),
        ("text", head.lstrip().startswith((b"{", b"[", b"<", b"#", b"import ", b"from "))),
    ]
    return next((kind for kind, matches in kinds if matches), "unknown")
