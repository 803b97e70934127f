"""``python -m tests.faults.parts CHANNEL_FD``: what the server keeps on its disk, written by one part after the other.

For each line ``PART FOLDER`` it forks a process under the filter of `tests.faults.watched`, whose listener goes over the
channel. That does all that the part does on the disk and prints a line for each thing when it is done; the last line is
``end`` and its exit code: 0, or `ERROR` where the part let an error of the disk through.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from service.errors import StorageFull
from service.journal import Journal
from service.kernel_store import KernelStore
from service.keys import Keys
from service.nouns import ModelFormat, Recipe, Stage, State, Step, Verify
from service.records import Compilation, Model
from service.store.directory import DirectoryStore
from service.tuning import TuningRecord
from service.tuning_database import TuningDatabase
from tests.faults.watched import watch

BLOBS = [bytes([number]) * 3000 for number in range(3)]
DIGESTS = [hashlib.sha256(blob).hexdigest() for blob in BLOBS]
ERROR = 3
STEP = Step(0, Stage.IMPORT, None, {}, changed=True, wall_ms=1.0, cpu_ms=1.0)
Done = Iterator[str]


def compilation(key: str, state: State) -> Compilation:
    """A record."""
    model = Model("0" * 64, ModelFormat.EXPORTED_PROGRAM, 3, "m.pt2")
    return Compilation(key, state, "2026-01-01T00:00:00Z", model, Recipe(()), Verify.ARTIFACT)


def store(folder: Path) -> Done:
    opened = DirectoryStore(folder)
    upload = opened.scratch / "upload"
    try:
        for number, blob in enumerate(BLOBS[:2]):
            opened.put(blob)
            yield f"put {number}"
        upload.write_bytes(BLOBS[2])
        opened.adopt(upload, DIGESTS[2])
        yield "put 2"
        opened.delete(DIGESTS[0])
        yield "deleted 0"
    finally:
        upload.unlink(missing_ok=True)  # as the one who received it does
        assert opened.used_bytes() == sum(file.stat().st_size for file in folder.glob("objects/??/*"))


def journal(folder: Path) -> Done:
    opened = Journal(folder / "journal.sqlite3")
    for key in ("a", "b"):
        opened.begin(compilation(key, State.QUEUED), [DIGESTS[0]])
        opened.claim(key, "caller")
        opened.add_step(key, STEP, DIGESTS[1])
        opened.update(compilation(key, State.SUCCEEDED), [DIGESTS[2]])
        yield f"finished {key}"
    opened.publish("m", "a")
    yield "published a"
    opened.publish("m", "b")
    yield "published b"
    opened.choose_version("m", 1)
    yield "chosen 1"
    opened.let_pass(5.0, ["a"])
    opened.release("b", "caller")
    opened.withdraw("m")
    yield "withdrawn m"
    opened.delete("b")
    yield "deleted b"
    opened.close()


def keys(folder: Path) -> Done:
    opened = Keys(folder)
    yield f"key {opened.create('one', ('compile', 'infer'))}"
    yield f"key {opened.create('two', ('read',))}"
    yield f"key {opened.create('one', ('admin',))}"
    opened.revoke("two")
    yield "revoked two"


def tuning(folder: Path) -> Done:
    opened = TuningDatabase(folder, 2)
    for number in range(4):
        opened.keep("machine", TuningRecord(f"dense-{number:016}", {"tile": number}, 1.5))
        yield f"kept {number}"


def kernels(folder: Path) -> Done:
    opened = KernelStore(folder / "kernels", 7000)
    for number, blob in enumerate(BLOBS):
        opened.keep("caller", DIGESTS[number], blob)
        assert set(opened.find("caller", DIGESTS).values()) <= set(BLOBS)
        yield f"kept {number}"


PARTS: dict[str, Callable[[Path], Done]] = {
    "store": store,
    "journal": journal,
    "keys": keys,
    "tuning": tuning,
    "kernels": kernels,
}


def run(part: str, folder: Path) -> int:
    """Does all that a part does; the exit code."""
    with contextlib.suppress(OSError, sqlite3.Error, StorageFull):
        for done in PARTS[part](folder):
            os.write(1, f"{done}\n".encode())
        return 0
    return ERROR


def main() -> None:
    """Runs what it is told until its input ends."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    null = os.open(os.devnull, os.O_WRONLY)
    for line in sys.stdin:
        part, folder = line.split()
        pid = os.fork()
        if pid == 0:
            os.dup2(null, 2)
            watch(channel)
            os._exit(run(part, Path(folder)))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, f"end {status}\n".encode())


if __name__ == "__main__":
    main()
