"""Content-addressed bytes: what a Store does, and how one is opened by its URL."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from service.store.directory import DirectoryReader, DirectoryStore


class StoreReader(Protocol):
    """Of a Store that another process has open: what it takes to run what is in it."""

    def path(self, digest: str) -> Path:
        """A readable file with the bytes of that digest, checked against it. Raises StoreDamaged."""

    @property
    def scratch(self) -> Path:
        """A folder on the same file system for files being made; emptied when the store is opened."""


class Store(StoreReader, Protocol):
    """Bytes named by their SHA-256 (64 hex digits). What is in it is whole, or it is not in it."""

    def put(self, data: bytes) -> str:
        """Keeps `data` durably and returns its digest. Raises StorageFull."""

    def adopt(self, file: Path, digest: str) -> None:
        """Moves `file`, which has that digest and is inside `scratch`, into the store durably. Raises StorageFull."""

    def read(self, digest: str) -> bytes:
        """The bytes of that digest, checked against it. Raises StoreDamaged."""

    def delete(self, digest: str) -> None:
        """Forgets that digest; unknown digests are ignored."""

    def size(self, digest: str) -> int:
        """The bytes of that digest; 0 when it is not there."""

    def used_bytes(self) -> int:
        """The bytes of all that it holds."""

    def digests(self) -> set[str]:
        """All that it holds."""

    def close(self) -> None:
        """Gives the store free for another server."""


def open_store(url: str) -> Store:
    """Opens the store that `url` names: ``file:PATH`` or a plain path. Raises StoreBusy, OSError."""
    return DirectoryStore(Path(url.removeprefix("file:")))


def open_reader(url: str) -> StoreReader:
    """As `open_store`, of a store that another process has open."""
    return DirectoryReader(Path(url.removeprefix("file:")))
