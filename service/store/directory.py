"""A Store in a directory: one file an object, under the first two digits of its name."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.errors import StorageFull, StoreDamaged
from service.full_disk import FULL_DISK
from service.leftovers import remove

_FULL = (*FULL_DISK, errno.EFBIG)


class StoreBusy(Exception):
    """Another server has the store open."""


class DirectoryReader:
    """Reads a DirectoryStore that another process has open."""

    def __init__(self, root: Path) -> None:
        self._objects = root / "objects"
        self._scratch = root / "scratch"

    @property
    def scratch(self) -> Path:
        return self._scratch

    def path(self, digest: str) -> Path:
        path = self._file(digest)
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _damaged(digest, str(error.strerror)) from error
        if found != digest:
            raise _damaged(digest, "its bytes have another hash")
        return path.absolute()

    def _file(self, digest: str) -> Path:
        return self._objects / digest[:2] / digest


class DirectoryStore(DirectoryReader):
    """``<root>/objects/ab/abcd…`` hold the objects, ``<root>/scratch`` what is being made, ``<root>/lock`` the owner.

    An object appears by a rename after its bytes have reached the disk, so a reader sees all of it or nothing.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (root / "lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StoreBusy(f"another server has {root} open; give this one another --data") from error
        super().__init__(root)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(mode=0o700)
        self._objects.mkdir(exist_ok=True, mode=0o700)
        self._counting = threading.Lock()
        self._used = sum(path.stat().st_size for path in self._objects.glob("??/*"))

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if self._is_whole(digest):
            return digest
        with _reporting_full_disk():
            descriptor, name = tempfile.mkstemp(dir=self._scratch)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                self.adopt(Path(name), digest)
            except BaseException:
                remove(Path(name))
                raise
        return digest

    def adopt(self, file: Path, digest: str) -> None:
        target = self._file(digest)
        with _reporting_full_disk():
            if self._is_whole(digest):
                remove(file)
                return
            # What is there under that name has rotted: the rename puts whole bytes in its place.
            self._count(-self.size(digest))
            target.parent.mkdir(exist_ok=True, mode=0o700)
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
            # Readable for the users that workers run as; the folder above keeps everybody else out.
            file.chmod(0o444)
            size = file.stat().st_size
            file.rename(target)
            self._count(size)
            _sync_directory(target.parent)
            _sync_directory(self._objects)

    def read(self, digest: str) -> bytes:
        try:
            data = self._file(digest).read_bytes()
        except OSError as error:
            raise _damaged(digest, str(error.strerror)) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise _damaged(digest, "its bytes have another hash")
        return data

    def _is_whole(self, digest: str) -> bool:
        if not self._file(digest).exists():
            return False
        try:
            self.path(digest)
        except StoreDamaged:
            return False
        return True

    def delete(self, digest: str) -> None:
        size = self.size(digest)
        self._file(digest).unlink(missing_ok=True)
        self._count(-size)

    def size(self, digest: str) -> int:
        try:
            return self._file(digest).stat().st_size
        except OSError:
            return 0

    def used_bytes(self) -> int:
        with self._counting:
            return self._used

    def digests(self) -> set[str]:
        return {path.name for path in self._objects.glob("??/*")}

    def close(self) -> None:
        self._lock.close()

    def _count(self, change: int) -> None:
        with self._counting:
            self._used += change


def _damaged(digest: str, reason: str) -> StoreDamaged:
    return StoreDamaged(
        f"The stored file {digest[:16]}… cannot be used: {reason}. Delete the compilation and send it again.",
        sha256=digest,
    )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _reporting_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"The server's disk has no room: {error.strerror}.") from error
        raise
