"""The best known choice for each kernel on each type of machine: SQLite beside the journal.

All Compilations share it. What is lost with it is speed: deleting the file makes the server forget all that it has
measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
from pathlib import Path

from service.errors import JsonObject
from service.host_cpu import cpu_model
from service.nouns import Target, canonical_json
from service.tuning import TuningRecord

log = logging.getLogger(__name__)

FILE = "tuning.sqlite3"

_TABLE = """
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- rises with each measurement
    machine TEXT NOT NULL,
    key TEXT NOT NULL,
    document TEXT NOT NULL,
    UNIQUE (machine, key)
);
"""


def machine_type(toolchain: JsonObject, target: Target) -> str:
    """A digest of all that decides which choice is fastest: the CPU, its features, TVM, and what is built for.

    `toolchain` is what the compile zygote announces. relaxd's own version is not part of it: a kernel that another
    version builds differently has another key.
    """
    host = {name: toolchain.get(name) for name in ("tvm", "cpu", "cpu_features")}
    cores = 1 if target.threads == 1 else len(os.sched_getaffinity(0))
    parts = {**host, "model": cpu_model(), "cores": cores, "target": target.to_json()}
    return hashlib.sha256(canonical_json(parts)).hexdigest()[:32]


class TuningDatabase:
    """The records in `folder`, at most `limit` of them. Methods may be called from any thread.

    What cannot be read or kept costs speed alone: it is logged, and Compilations go on without it.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._path = folder / FILE
        self._limit = limit

    def records(self, machine: str) -> tuple[TuningRecord, ...]:
        """All that is known for a type of machine; what cannot be read as a record is left out."""
        if not self._path.exists():
            return ()
        query = "SELECT document FROM records WHERE machine = ? ORDER BY number"
        try:
            with self._opened() as db:
                rows = db.execute(query, (machine,)).fetchall()
        except sqlite3.Error:
            log.exception("the tuning records cannot be read")
            return ()
        found = []
        for (document,) in rows:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                found.append(TuningRecord.from_json(json.loads(document)))
        return tuple(found)

    def keep(self, machine: str, record: TuningRecord) -> None:
        """Records a measurement in place of an earlier one; beyond the limit those are forgotten that are oldest."""
        document = json.dumps(record.to_json())
        insert = "INSERT OR REPLACE INTO records (machine, key, document) VALUES (?, ?, ?)"
        forget = "DELETE FROM records WHERE number NOT IN (SELECT number FROM records ORDER BY number DESC LIMIT ?)"
        try:
            with self._opened() as db, db:
                db.execute(insert, (machine, record.key, document))
                db.execute(forget, (self._limit,))
        except sqlite3.Error:
            log.exception("a tuning record cannot be kept")

    def _opened(self) -> contextlib.closing[sqlite3.Connection]:
        db = sqlite3.connect(self._path, timeout=5)
        db.executescript(_TABLE)
        return contextlib.closing(db)
