"""API keys: who may do what. Kept hashed beside the journal; a key is shown once, when it is made."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import hmac
import os
import re
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path

SCOPES = ("compile", "infer", "read", "admin")
FILE = "keys.sqlite3"
MAX_REMEMBERED = 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TABLE = """
CREATE TABLE IF NOT EXISTS keys (
    name TEXT PRIMARY KEY,
    digest TEXT NOT NULL,  -- SHA-256 of the secret, which has 256 random bits: there is nothing to guess
    scopes TEXT NOT NULL,
    created_at TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class Caller:
    """The one that a request comes from. `admin` may do everything and sees what all have submitted."""

    name: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether the key has that scope; every key may `read` what is its caller's."""
        return scope in self.scopes or "admin" in self.scopes or scope == "read"


# The caller of the request that is being answered; None where no keys are asked for.
current: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("caller", default=None)


class Keys:
    """The keys of one data folder. Each call opens the file: a command may change it while the server runs."""

    def __init__(self, data: Path) -> None:
        self._path = data / FILE
        # Callers by the digest of their key, as they were when the file had that stamp.
        self._remembered: dict[str, Caller] = {}
        self._stamp: tuple[int, bytes] | None = None

    def create(self, name: str, scopes: tuple[str, ...]) -> str:
        """Makes a key, or a new secret in place of an old one (which stops working); the whole key.

        Raises ValueError naming what is wrong, sqlite3.Error.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"a key's name is a letter or digit and up to 63 more, dots, _ and -; {name!r} is not")
        unknown = [scope for scope in scopes if scope not in SCOPES]
        if unknown or not scopes:
            raise ValueError(f"scopes are {', '.join(SCOPES)}, not {', '.join(unknown) or 'none'}")
        secret = secrets.token_urlsafe(32)
        with self._opened() as db, db:
            db.execute(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))",
                (name, _digest(secret), ",".join(sorted(set(scopes)))),
            )
        return f"relaxd.{name}.{secret}"

    def revoke(self, name: str) -> bool:
        """Forgets a key; whether there was one. Raises sqlite3.Error."""
        with self._opened() as db, db:
            return db.execute("DELETE FROM keys WHERE name = ?", (name,)).rowcount > 0

    def all(self) -> list[tuple[str, str, str]]:
        """Name, scopes and date of each key. Raises sqlite3.Error."""
        if not self._path.exists():
            return []
        with self._opened() as db:
            return list(db.execute("SELECT name, scopes, created_at FROM keys ORDER BY name"))

    def remembered(self, key: str) -> Caller | None:
        """As `find`, for a key that was found before, while the file is as it was; None for any other. Never waits."""
        return (
            self._remembered.get(_digest(key))
            if self._stamp is not None and self._stamp == self._read_stamp()
            else None
        )

    def _read_stamp(self) -> tuple[int, bytes] | None:
        """What changes with every change of the file: its inode, and SQLite's counter of changes in its header."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.fstat(descriptor).st_ino, os.pread(descriptor, 4, 24)
        finally:
            os.close(descriptor)

    def find(self, key: str) -> Caller | None:
        """The caller of a key; None where there is none like it. Raises sqlite3.Error."""
        prefix, _, rest = key.partition(".")
        name, _, secret = rest.rpartition(".")
        if prefix != "relaxd" or not self._path.exists():
            return None
        stamp = self._read_stamp()
        with self._opened() as db:
            row = db.execute("SELECT digest, scopes FROM keys WHERE name = ?", (name,)).fetchone()
        known, scopes = row if row is not None else ("", "")
        if not hmac.compare_digest(_digest(secret), known):
            return None
        caller = Caller(name, frozenset(scopes.split(",")))
        if stamp != self._stamp or len(self._remembered) >= MAX_REMEMBERED:
            self._remembered, self._stamp = {}, stamp
        self._remembered[_digest(key)] = caller
        return caller

    def _opened(self) -> contextlib.closing[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._path)
        self._path.chmod(0o600)
        db.executescript(_TABLE)
        return contextlib.closing(db)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
