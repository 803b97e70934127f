"""Zip archives of PyTorch, opened under limits: nothing is unpacked before names, sizes and places are checked."""

from __future__ import annotations

import contextlib
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from service.compiler.readers.refusal import damaged, shown, unsafe
from service.limits import Limits

CHUNK = 1 << 20
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_NAME = re.compile(r"[A-Za-z0-9_.\-+ /<>$@=,()\[\]]{1,400}")
_BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class ArchiveLimits:
    """The most that an archive may hold. `ratio` bounds unpacked to packed bytes of each compressed entry.

    `nodes` are the calls of the program in it.
    """

    entries: int = 100_000
    unpacked_bytes: int = 1 << 30
    ratio: int = 200
    nodes: int = 100_000

    @classmethod
    def of(cls, limits: Limits) -> ArchiveLimits:
        """Those that the operator has set."""
        return cls(unpacked_bytes=limits.unpacked_bytes, nodes=limits.nodes)


class Archive:
    """The entries of one archive by their path below its root folder, all of them checked. A context manager."""

    def __init__(self, file: IO[bytes], limits: ArchiveLimits) -> None:
        """Raises DamagedModel, UnsafeModel. The caller keeps `file` open as long as the Archive is used."""
        with _broken("the archive"):
            self._zip = zipfile.ZipFile(file)
        try:
            self.root, self._entries = _checked_entries(self._zip, limits)
            with _broken("the archive"):
                _check_places(file, self._zip)
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        """All paths below the root folder, in the archive's order."""
        return list(self._entries)

    def size(self, name: str) -> int:
        """Unpacked bytes of an entry. Raises DamagedModel when there is none."""
        return self._entry(name).file_size

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of an entry. Raises DamagedModel when there is none, it is damaged, or larger than `limit`."""
        entry = self._entry(name)
        if entry.file_size > limit:
            raise damaged(f"The entry has {entry.file_size} bytes, at most {limit} are taken", name)
        with _broken(name):
            data = self._zip.read(entry)
        if len(data) != entry.file_size:
            raise damaged("The entry is shorter than the archive says", name)
        return data

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of an entry, a chunk at a time. Raises DamagedModel."""
        entry = self._entry(name)
        left = entry.file_size
        with _broken(name), self._zip.open(entry) as source:
            while chunk := source.read(CHUNK):
                left -= len(chunk)
                yield chunk
        if left:
            raise damaged("The entry is shorter than the archive says", name)

    def _entry(self, name: str) -> zipfile.ZipInfo:
        if name not in self._entries:
            raise damaged(f"The archive has no entry {shown(name)}")
        return self._entries[name]


@contextlib.contextmanager
def _broken(where: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise damaged(f"The archive cannot be read: {shown(str(error))}", where) from error


def _checked_entries(archive: zipfile.ZipFile, limits: ArchiveLimits) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    infos = archive.infolist()
    if len(infos) > limits.entries:
        raise unsafe(f"The archive has {len(infos)} entries, at most {limits.entries} are taken")
    if not infos:
        raise damaged("The archive is empty")
    root = infos[0].filename.partition("/")[0]
    entries: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in infos:
        _check_entry(info, limits.ratio)
        total += info.file_size
        folder, _, name = info.filename.partition("/")
        if folder != root or not name:
            raise unsafe(f"The archive has an entry outside its root folder {shown(root)}", shown(info.filename))
        if name in entries:
            raise unsafe("The archive has two entries of one name", shown(name))
        entries[name] = info
    if total > limits.unpacked_bytes:
        raise unsafe(f"The archive unpacks to {total} bytes, at most {limits.unpacked_bytes} are taken")
    return root, entries


def _check_entry(info: zipfile.ZipInfo, ratio: int) -> None:
    name = info.filename
    # The root folder is what the user called the file, in whatever language.
    root, *parts = name.split("/")
    plain = bool(root) and root.isprintable() and "\\" not in root and root not in (".", "..") and len(root) <= 255
    if not plain or not _NAME.fullmatch("/".join(parts) or "x") or {"..", "."} & set(parts) or "" in parts[:-1]:
        raise unsafe("An entry of the archive has a name that is no plain relative path", shown(name))
    if info.is_dir() or (info.external_attr >> 16) & 0o170000 not in (0, 0o100000):
        raise unsafe("An entry of the archive is no regular file", shown(name))
    if info.flag_bits & 0x1:
        raise damaged("An entry of the archive is encrypted", shown(name))
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise damaged("An entry of the archive is packed in a way that PyTorch does not use", shown(name))
    if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        raise damaged("An entry of the archive has two sizes", shown(name))
    if info.file_size > CHUNK and info.file_size > ratio * max(info.compress_size, 1):
        raise unsafe(f"An entry of the archive unpacks to more than {ratio} times its size", shown(name))


def _check_places(file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """Raises when two entries share bytes, as in an archive that unpacks to far more than it holds."""
    free = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        file.seek(info.header_offset)
        head = file.read(_LOCAL_HEADER.size)
        if len(head) < _LOCAL_HEADER.size or head[:4] != b"PK\x03\x04":
            raise damaged("An entry of the archive does not begin where the archive says", shown(info.filename))
        *_, name_size, extra_size = _LOCAL_HEADER.unpack(head)
        if info.header_offset < free:
            raise unsafe("Two entries of the archive share bytes", shown(info.filename))
        free = info.header_offset + _LOCAL_HEADER.size + name_size + extra_size + info.compress_size
