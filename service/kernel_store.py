"""Kernels that compile workers have made, kept for later Compilations: a folder of files, of bounded size.

A worker is not trusted: what it made is given only to Compilations of the same caller. Nothing here is needed to go on;
what is damaged, or cannot be written, is as if it had never been there.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import threading
from pathlib import Path

from service.leftovers import remove

# Larger ones are made anew each time.
MAX_KERNEL_BYTES = 16 << 20
_DIGEST = 32
_KEY = re.compile(r"[0-9a-f]{64}")


def is_key(text: object) -> bool:
    """Whether a worker may name a kernel so."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


class KernelStore:
    """``<folder>/<caller>/<key>`` hold the kernels, each behind the SHA-256 of its bytes. May be used by many threads.

    The least recently used are deleted when all are more than `limit_bytes`.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._scratch = folder / "scratch"
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True, mode=0o700)
        self._bytes = sum(size for _, size, _ in self._all())
        # Since the server started.
        self.found = 0
        self.missed = 0

    def find(self, caller: str, keys: list[str]) -> dict[str, bytes]:
        """The kernels of this caller that are there and whole."""
        known = {}
        for key in keys:
            data = self._read(self._file(caller, key))
            if data is not None:
                known[key] = data
        with self._lock:
            self.found += len(known)
            self.missed += len(keys) - len(known)
        return known

    def keep(self, caller: str, key: str, data: bytes) -> None:
        """Keeps a kernel, unless it is larger than all may be."""
        size = len(data) + _DIGEST
        if size > self._limit_bytes:
            return
        file = self._file(caller, key)
        new = self._scratch / f"{next(self._numbers)}"
        try:
            file.parent.mkdir(exist_ok=True, mode=0o700)
            new.write_bytes(hashlib.sha256(data).digest() + data)
            with self._lock:
                before = file.stat().st_size if file.exists() else 0
                new.rename(file)
                self._bytes += size - before
                self._evict()
        except OSError:
            remove(new)

    def _read(self, file: Path) -> bytes | None:
        try:
            data = file.read_bytes()
            os.utime(file)
        except OSError:
            return None
        if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
            return data[_DIGEST:]
        self._delete(file, len(data))
        return None

    def _evict(self) -> None:
        if self._bytes <= self._limit_bytes:
            return
        for _, size, file in sorted(self._all()):
            if self._bytes <= self._limit_bytes:
                return
            file.unlink(missing_ok=True)
            self._bytes -= size

    def _delete(self, file: Path, size: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            file.unlink()
            self._bytes -= size

    def _all(self) -> list[tuple[float, int, Path]]:
        """When each was used last, its size, its file."""
        found = []
        for file in self._folder.glob("*/" + "?" * 64):
            with contextlib.suppress(OSError):
                status = file.stat()
                found.append((status.st_mtime, status.st_size, file))
        return found

    def _file(self, caller: str, key: str) -> Path:
        # Callers name themselves as they like; a folder's name is ours.
        return self._folder / hashlib.sha256(caller.encode()).hexdigest()[:32] / key
