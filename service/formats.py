"""What kind of file an upload is, by its content and without loading any of it."""

from __future__ import annotations

import zipfile
from pathlib import Path

from service.errors import DamagedModel, EmptyModel, Problem, UnsupportedFormat
from service.nouns import ModelFormat

MAX_ENTRIES = 200_000

_EXPORT = (
    "Make a .pt2 of the model: "
    "`program = torch.export.export(model.eval(), (example_input,)); torch.export.save(program, 'model.pt2')`."
)
_LOAD_FIRST = {
    "a TorchScript archive": "Export the original nn.Module instead. ",
    "a file of torch.save (a state_dict or a pickled module)": "Build the nn.Module and load the weights into it. ",
    "a torch.package archive": "Import the module from the package. ",
    "an ONNX model": "Export from the original PyTorch module. ",
    "a safetensors file, which holds weights without a model": "Build the nn.Module and load the weights into it. ",
    "a Keras or HDF5 model": "Rebuild the model in PyTorch. ",
    "a pickle file": "Load it yourself to get the nn.Module. ",
}


def recognise(path: Path) -> ModelFormat:
    """The format of the file. Raises EmptyModel, DamagedModel, UnsupportedFormat."""
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise EmptyModel("The `model` part has no bytes. With curl, send the file's content by `-F model=@FILE`.")
    if not head.startswith(b"PK"):
        raise _foreign(_kind_of_plain_file(head))
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) > MAX_ENTRIES:
                raise DamagedModel(f"The archive lists {len(names)} files; a model has at most {MAX_ENTRIES}.")
            if names and min(info.header_offset for info in archive.infolist()) > 0:
                # Cut off behind an archive that lies inside it, the file would be taken for that one.
                raise zipfile.BadZipFile("its directory belongs to an archive inside it")
            return _recognise_archive(archive, names)
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DamagedModel(
            f"The file starts as a zip archive (as a .pt2 is) but cannot be read as one: {error}. "
            "It may be cut short: compare its size, save it again, send it again."
        ) from error


def is_npz(path: Path) -> bool:
    """Whether the file is a zip archive of ``.npy`` files, by its directory."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError):
        return False
    return len(names) <= MAX_ENTRIES and all(name.endswith(".npy") for name in names)


def _recognise_archive(archive: zipfile.ZipFile, names: list[str]) -> ModelFormat:
    root = names[0].split("/", 1)[0] if names else ""
    inner = {name.split("/", 1)[1] for name in names if "/" in name}
    if "archive_format" in inner:
        if not any(name.startswith("models/") and name.endswith(".json") for name in inner):
            raise DamagedModel("The .pt2 archive has no models/*.json: it holds no exported program. " + _EXPORT)
        with archive.open(f"{root}/archive_format") as file:
            if file.read(16) == b"pt2":
                return ModelFormat.EXPORTED_PROGRAM
    if "serialized_exported_program.json" in names:
        raise UnsupportedFormat(
            "The file is a .pt2 of an older PyTorch. Load and save it with PyTorch 2.13. " + _EXPORT
        )
    raise _foreign(_kind_of_archive(names, inner))


def _kind_of_archive(names: list[str], inner: set[str]) -> str:
    if any(name.startswith("code/") for name in inner) and "constants.pkl" in inner:
        return "a TorchScript archive"
    if any(name.startswith(".data/") for name in inner):
        return "a torch.package archive"
    if "data.pkl" in inner:
        return "a file of torch.save (a state_dict or a pickled module)"
    if "config.json" in names and "metadata.json" in names:
        return "a Keras or HDF5 model"
    return "a zip archive, but not one of torch.export.save"


def _kind_of_plain_file(head: bytes) -> str:
    if head.startswith(b"\x89HDF\r\n"):
        return "a Keras or HDF5 model"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 27:
        return "a safetensors file, which holds weights without a model"
    if head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        return "a pickle file"
    if head[:1] == b"\x08" and b"\x12" in head[:6]:
        return "an ONNX model"
    if head.lstrip().startswith((b"{", b"[", b"<", b"#")):
        return "a text file"
    return "of no kind that relaxd knows"


def _foreign(kind: str) -> Problem:
    return UnsupportedFormat(f"The file is {kind}. {_LOAD_FIRST.get(kind, '')}{_EXPORT}", found=kind)
