"""API keys: who may do what. Kept hashed beside the journal; a key is shown once, when it is made."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import hmac
import re
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path

SCOPES = ("compile", "infer", "read", "admin")
FILE = "keys.sqlite3"

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
    """The keys of one data folder. A command may change them while the server runs: `find` notices that at once."""

    def __init__(self, data: Path) -> None:
        self._path = data / FILE
        self._reader: sqlite3.Connection | None = None
        # The file and its version that `_known` was read from.
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, tuple[str, frozenset[str]]] = {}

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

    def find(self, key: str) -> Caller | None:
        """The caller of a key; None where there is none like it. For one thread. Raises sqlite3.Error."""
        prefix, _, rest = key.partition(".")
        name, _, secret = rest.rpartition(".")
        if prefix != "relaxd":
            return None
        self._read_anew_if_changed()
        known, scopes = self._known.get(name, ("", frozenset[str]()))
        return Caller(name, scopes) if hmac.compare_digest(_digest(secret), known) else None

    def _read_anew_if_changed(self) -> None:
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            self._seen, self._known = None, {}
            return
        if self._reader is None or self._seen is None or inode != self._seen[0]:
            self.close()
            self._reader = sqlite3.connect(self._path)
        # SQLite's own count of what other connections have written: a few microseconds.
        seen = (inode, int(self._reader.execute("PRAGMA data_version").fetchone()[0]))
        if seen != self._seen:
            rows = self._reader.execute("SELECT name, digest, scopes FROM keys")
            self._known = {name: (digest, frozenset(scopes.split(","))) for name, digest, scopes in rows}
            self._seen = seen

    def close(self) -> None:
        """Closes what `find` keeps open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _opened(self) -> contextlib.closing[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._path)
        self._path.chmod(0o600)
        db.executescript(_TABLE)
        return contextlib.closing(db)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
