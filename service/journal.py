"""The durable record of Compilations: SQLite in WAL mode, every change one transaction that has reached the disk."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.nouns import State, Step
from service.records import Compilation

SCHEMA_VERSION = 4

_SCHEMA = """
CREATE TABLE compilations (
    id TEXT PRIMARY KEY,
    requested INTEGER NOT NULL,  -- rises with each request, so the largest is the caller's latest
    state TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX compilations_by_request ON compilations (requested);
CREATE TABLE steps (
    id TEXT NOT NULL REFERENCES compilations (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    document TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    PRIMARY KEY (id, number)
);
CREATE TABLE objects (
    id TEXT NOT NULL REFERENCES compilations (id) ON DELETE CASCADE,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (id, sha256)
);
CREATE INDEX objects_by_digest ON objects (sha256);
"""


_PUBLICATIONS = """
CREATE TABLE publications (
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    compilation TEXT NOT NULL,
    published_at TEXT NOT NULL,
    current INTEGER NOT NULL,  -- 1 for the version that answers
    PRIMARY KEY (name, version)
);
CREATE INDEX publications_by_compilation ON publications (compilation);
"""


_CLAIMS = """
CREATE TABLE claims (
    compilation TEXT NOT NULL,
    caller TEXT NOT NULL,  -- who has submitted it
    requested INTEGER NOT NULL,  -- rises with each request
    PRIMARY KEY (compilation, caller)
);
CREATE INDEX claims_by_caller ON claims (caller, requested);
"""


_USES = """
ALTER TABLE objects ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE compilations ADD COLUMN used_s REAL NOT NULL DEFAULT 0;  -- when it was used last, by the clock below
CREATE TABLE clock (running_s REAL NOT NULL);  -- for how long servers have run: no clock of the machine that can jump
INSERT INTO clock VALUES (0);
"""


@dataclass(frozen=True)
class PublishedVersion:
    """One version of a published model; `current` is the one that answers."""

    number: int
    compilation: str
    published_at: str
    current: bool


class JournalTooNew(Exception):
    """The journal was written by a newer relaxd."""


class JournalReader:
    """What must be read to run a published model, from a journal that this process or another one writes.

    Methods belong to the thread that opened it, and never wait for a writer.
    """

    def __init__(self, path: Path) -> None:
        """Opens a journal that is there. Raises sqlite3.Error."""
        self._reader = sqlite3.connect(path, isolation_level=None)

    @property
    def changes(self) -> int:
        """Another number after each change, so that what was read can be known to hold still."""
        # SQLite's own count of what other connections have written: a few microseconds.
        return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def get(self, compilation_id: str) -> Compilation | None:
        """The Compilation with its steps."""
        row = self._reader.execute("SELECT document FROM compilations WHERE id = ?", (compilation_id,)).fetchone()
        if row is None:
            return None
        steps = self._reader.execute(
            "SELECT document FROM steps WHERE id = ? ORDER BY number", (compilation_id,)
        ).fetchall()
        return Compilation.from_json(json.loads(row[0]), tuple(Step.from_json(json.loads(step[0])) for step in steps))

    def is_claimed(self, compilation_id: str, caller: str) -> bool:
        """Whether the caller has submitted the Compilation."""
        found = self._reader.execute(
            "SELECT 1 FROM claims WHERE compilation = ? AND caller = ?", (compilation_id, caller)
        )
        return found.fetchone() is not None

    def published_names(self) -> list[str]:
        """All names of models, sorted."""
        rows = self._reader.execute("SELECT DISTINCT name FROM publications ORDER BY name")
        return [str(row[0]) for row in rows]

    def versions(self, name: str) -> list[PublishedVersion]:
        """The versions of a model, the newest first; none where it is not published."""
        rows = self._reader.execute(
            "SELECT version, compilation, published_at, current FROM publications WHERE name = ? ORDER BY version DESC",
            (name,),
        )
        return [PublishedVersion(int(row[0]), str(row[1]), str(row[2]), bool(row[3])) for row in rows]

    def close(self) -> None:
        self._reader.close()


class Journal(JournalReader):
    """All Compilations that were ever asked for and not deleted.

    Methods that write block for one disk write and may be called from any thread; methods that read use a connection
    of their own, never wait for a writer, and belong to the thread that opened the journal.
    """

    def __init__(self, path: Path, size_of: Callable[[str], int] = lambda _digest: 0) -> None:
        """Opens or creates the journal; `size_of` tells the bytes of an object. Raises JournalTooNew, sqlite3.Error."""
        self._size_of = size_of
        self._writer = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._writing = threading.Lock()
        self._changes = 0
        version = self._writer.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            self._writer.close()
            raise JournalTooNew(
                f"{path} has version {version}, this relaxd knows up to {SCHEMA_VERSION}: start the newer relaxd again"
            )
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = FULL")
        self._writer.execute("PRAGMA foreign_keys = ON")
        if version == 0:
            self._writer.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = 1; COMMIT;")
        for number, tables in ((2, _PUBLICATIONS), (3, _CLAIMS), (4, _USES)):
            if version < number:
                self._writer.executescript(f"BEGIN; {tables} PRAGMA user_version = {number}; COMMIT;")
        super().__init__(path)
        if 0 < version < 4:
            self._measure()

    @property
    def changes(self) -> int:
        """Counted here: every change is made here."""
        return self._changes

    def begin(self, compilation: Compilation, objects: Iterable[str]) -> None:
        """Records a new Compilation, in place of an earlier attempt with the same id and its steps."""
        with self._transaction() as db:
            db.execute("DELETE FROM compilations WHERE id = ?", (compilation.id,))
            db.execute(
                "INSERT INTO compilations VALUES (?, (SELECT COALESCE(MAX(requested), 0) + 1 FROM compilations), ?, ?, "
                "(SELECT running_s FROM clock))",
                (compilation.id, compilation.state.value, _document(compilation)),
            )
            self._keep_objects(db, compilation.id, objects)

    def update(self, compilation: Compilation, objects: Iterable[str] = ()) -> None:
        """Records a Compilation's new state, and the objects that it now needs. Steps are recorded by `add_step`."""
        with self._transaction() as db:
            db.execute(
                "UPDATE compilations SET state = ?, document = ? WHERE id = ?",
                (compilation.state.value, _document(compilation), compilation.id),
            )
            self._keep_objects(db, compilation.id, objects)

    def add_step(self, compilation_id: str, step: Step, snapshot: str) -> None:
        """Records one more step and the digest of its Snapshot."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO steps VALUES (?, ?, ?, ?)",
                (compilation_id, step.index, json.dumps(step.to_json()), snapshot),
            )
            self._keep_objects(db, compilation_id, [snapshot])

    def touch(self, compilation_id: str) -> None:
        """Makes the Compilation the latest one."""
        with self._transaction() as db:
            db.execute(
                "UPDATE compilations SET requested = (SELECT MAX(requested) + 1 FROM compilations), "
                "used_s = (SELECT running_s FROM clock) WHERE id = ?",
                (compilation_id,),
            )

    def latest(self, caller: str | None = None) -> str | None:
        """The id of the Compilation that was asked for last, by anyone or by one caller."""
        return next(iter(self.ids(1, caller)), None)

    def ids(self, limit: int, caller: str | None = None) -> list[str]:
        """The ids of the newest Compilations, the latest first; of all, or those that a caller has submitted."""
        if caller is None:
            rows = self._reader.execute("SELECT id FROM compilations ORDER BY requested DESC LIMIT ?", (limit,))
        else:
            rows = self._reader.execute(
                "SELECT compilation FROM claims JOIN compilations ON id = compilation WHERE caller = ? "
                "ORDER BY claims.requested DESC LIMIT ?",
                (caller, limit),
            )
        return [str(row[0]) for row in rows]

    def claim(self, compilation_id: str, caller: str) -> None:
        """Records that a caller has submitted the Compilation, now."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, (SELECT COALESCE(MAX(requested), 0) + 1 FROM claims))",
                (compilation_id, caller),
            )

    def release(self, compilation_id: str, caller: str) -> bool:
        """Forgets that a caller has submitted the Compilation; whether another one has, too."""
        with self._transaction() as db:
            db.execute("DELETE FROM claims WHERE compilation = ? AND caller = ?", (compilation_id, caller))
            rest = db.execute("SELECT 1 FROM claims WHERE compilation = ? LIMIT 1", (compilation_id,))
            return rest.fetchone() is not None

    def unfinished(self) -> list[Compilation]:
        """Those that were queued or running when the journal was written last."""
        rows = self._reader.execute(
            "SELECT id FROM compilations WHERE state IN (?, ?)", (State.QUEUED.value, State.RUNNING.value)
        ).fetchall()
        return [found for row in rows if (found := self.get(row[0])) is not None]

    def snapshot(self, compilation_id: str, number: int) -> str | None:
        """The digest of one step's Snapshot."""
        row = self._reader.execute(
            "SELECT snapshot FROM steps WHERE id = ? AND number = ?", (compilation_id, number)
        ).fetchone()
        return None if row is None else str(row[0])

    def delete(self, compilation_id: str) -> bool:
        """Forgets the Compilation, its steps, and its claim on objects, unless it is published; whether it is gone."""
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM publications WHERE compilation = ?", (compilation_id,)).fetchone() is not None:
                return False
            db.execute("DELETE FROM compilations WHERE id = ?", (compilation_id,))
            db.execute("DELETE FROM claims WHERE compilation = ?", (compilation_id,))
            return True

    def objects(self, compilation_id: str | None = None) -> set[str]:
        """The digests that one Compilation needs, or that all of them need."""
        if compilation_id is None:
            rows = self._reader.execute("SELECT DISTINCT sha256 FROM objects")
        else:
            rows = self._reader.execute("SELECT sha256 FROM objects WHERE id = ?", (compilation_id,))
        return {str(row[0]) for row in rows}

    def needs(self, digest: str) -> bool:
        """Whether any Compilation needs that object."""
        return self._reader.execute("SELECT 1 FROM objects WHERE sha256 = ? LIMIT 1", (digest,)).fetchone() is not None

    def publish(self, name: str, compilation_id: str) -> bool:
        """Records a Compilation as the next version of a model and lets it answer; whether it is still there."""
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM compilations WHERE id = ?", (compilation_id,)).fetchone() is None:
                return False
            db.execute("UPDATE publications SET current = 0 WHERE name = ?", (name,))
            db.execute(
                "INSERT INTO publications VALUES (?, (SELECT COALESCE(MAX(version), 0) + 1 FROM publications "
                "WHERE name = ?), ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 1)",
                (name, name, compilation_id),
            )
            return True

    def choose_version(self, name: str, version: int) -> None:
        """Lets a version that is there answer."""
        with self._transaction() as db:
            db.execute("UPDATE publications SET current = (version = ?) WHERE name = ?", (version, name))

    def withdraw(self, name: str) -> None:
        """Forgets a model's name and versions."""
        with self._transaction() as db:
            db.execute("DELETE FROM publications WHERE name = ?", (name,))

    def published_as(self, compilation_id: str) -> list[str]:
        """The names of the models that have the Compilation as a version."""
        rows = self._reader.execute(
            "SELECT DISTINCT name FROM publications WHERE compilation = ? ORDER BY name", (compilation_id,)
        )
        return [str(row[0]) for row in rows]

    def stored_bytes(self, caller: str) -> int:
        """The bytes of all objects of the Compilations that a caller has submitted, each object once."""
        found = self._reader.execute(
            "SELECT COALESCE(SUM(bytes), 0) FROM (SELECT DISTINCT sha256, bytes FROM objects "
            "JOIN claims ON id = compilation WHERE caller = ?)",
            (caller,),
        )
        return int(found.fetchone()[0])

    def objects_of(self, caller: str, digests: Iterable[str]) -> set[str]:
        """Which of the objects Compilations need that a caller has submitted."""
        query = "SELECT 1 FROM objects JOIN claims ON id = compilation WHERE caller = ? AND sha256 = ? LIMIT 1"
        return {digest for digest in digests if self._reader.execute(query, (caller, digest)).fetchone() is not None}

    def let_pass(self, seconds: float, used: Iterable[str]) -> None:
        """Puts the clock forward by the seconds that the server has run, and notes what was used in them."""
        with self._transaction() as db:
            db.execute("UPDATE clock SET running_s = running_s + ?", (seconds,))
            db.executemany(
                "UPDATE compilations SET used_s = (SELECT running_s FROM clock) WHERE id = ?", [(key,) for key in used]
            )

    def unused(self, seconds: float = 0.0, caller: str | None = None) -> list[str]:
        """Compilations that ended, are not published, and were not used for so long; what was used longest ago first.

        Of all, or those that a caller has submitted.
        """
        rows = self._reader.execute(
            "SELECT id FROM compilations WHERE state NOT IN (?, ?) AND used_s <= (SELECT running_s FROM clock) - ? "
            "AND id NOT IN (SELECT compilation FROM publications) "
            "AND (? IS NULL OR id IN (SELECT compilation FROM claims WHERE caller = ?)) ORDER BY used_s, requested",
            (State.QUEUED.value, State.RUNNING.value, seconds, caller, caller),
        )
        return [str(row[0]) for row in rows]

    def _keep_objects(self, db: sqlite3.Connection, compilation_id: str, objects: Iterable[str]) -> None:
        rows = [(compilation_id, digest, self._size_of(digest)) for digest in objects]
        db.executemany("INSERT OR IGNORE INTO objects VALUES (?, ?, ?)", rows)

    def _measure(self) -> None:
        """Notes the sizes of the objects of a journal that had none."""
        sizes = [(self._size_of(digest), digest) for digest in self.objects()]
        with self._transaction() as db:
            db.executemany("UPDATE objects SET bytes = ? WHERE sha256 = ?", sizes)

    def close(self) -> None:
        super().close()
        with self._writing:
            self._writer.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            try:
                with self._writer:
                    self._writer.execute("BEGIN IMMEDIATE")
                    yield self._writer
            finally:
                self._changes += 1


def _document(compilation: Compilation) -> str:
    return json.dumps(compilation.to_json(with_steps=False))
