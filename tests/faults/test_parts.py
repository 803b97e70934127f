"""Each part that keeps something on the disk, ended and refused at each of its writes: what it said is done stays done.

All writes of a part are counted in a first run; then each is the last one of a process that is killed before it, and the
one at which the disk fails once, is full from then on, or becomes read-only.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.journal import Journal
from service.kernel_store import KernelStore
from service.keys import Keys
from service.nouns import State
from service.store.directory import DirectoryStore
from service.tuning_database import TuningDatabase
from tests.conftest import ROOT
from tests.faults.parts import BLOBS, DIGESTS, ERROR, PARTS, STEP
from tests.faults.watcher import KILL, Call, Verdict, Watcher

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the watched calls have the numbers of x86-64")

NEED_NO_ROOM = ("unlink", "unlinkat", "rmdir", "fsync", "fdatasync", "rename", "chmod", "fchmod", "fchown", "utimensat")
# Every n-th write by default; the journal has the most by far, and its writes are alike.
STRIDES = {"journal": 7, "keys": 3, "tuning": 5}


@dataclass
class Outcome:
    """What a run said, how it ended, and the writes that it came to."""

    done: list[str]
    status: int
    writes: list[Call]


class Runner:
    """Runs parts in processes that are forked for them."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.parts", str(theirs.fileno())],
                cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip

    def run(self, part: str, folder: Path, verdict_at: Callable[[int, Call], Verdict]) -> Outcome:
        """Runs a part; `verdict_at` says what becomes of each of its writes, by its number."""
        folder.mkdir(exist_ok=True)
        writes: list[Call] = []

        def judge(call: Call) -> Verdict:
            if not call.durable:
                return None
            writes.append(call)
            return verdict_at(len(writes) - 1, call)

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{part} {folder}\n")
        self._process.stdin.flush()
        _, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        watcher = Watcher(descriptors[0], 0, folder, judge)
        done: list[str] = []
        for line in self._process.stdout:
            if line.startswith("end "):
                assert watcher.ended.wait(10)
                return Outcome(done, int(line.split()[1]), writes)
            done.append(line.strip())
        raise AssertionError("the process that runs parts is gone")

    def close(self) -> None:
        self._channel.close()
        self._process.communicate(timeout=10)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    started = Runner()
    yield started
    started.close()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory where that may be mounted: nothing here needs to outlive the machine, and syncing takes long."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=False, capture_output=True)
    yield folder
    if mounted.returncode == 0:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def kill(at: int, number: int, _: Call) -> Verdict:
    return KILL if number == at else None


def fail_once(at: int, number: int, _: Call) -> Verdict:
    return errno.EIO if number == at else None


def full(at: int, number: int, call: Call) -> Verdict:
    return errno.ENOSPC if number >= at and call.name not in NEED_NO_ROOM else None


def read_only(at: int, number: int, _: Call) -> Verdict:
    return errno.EROFS if number >= at else None


FAULTS = {"killed": kill, "fails once": fail_once, "full": full, "read-only": read_only}


def check_store(folder: Path, done: list[str]) -> None:
    opened = DirectoryStore(folder)
    assert list(opened.scratch.iterdir()) == []
    for digest in opened.digests():
        assert opened.read(digest) in BLOBS
    for number, digest in enumerate(DIGESTS):
        if f"put {number}" in done and not (number == 0 and "put 2" in done):
            assert opened.read(digest) == BLOBS[number]
    assert "deleted 0" not in done or DIGESTS[0] not in opened.digests()
    opened.close()


def check_journal(folder: Path, done: list[str]) -> None:
    opened = Journal(folder / "journal.sqlite3")
    db = sqlite3.connect(folder / "journal.sqlite3")
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    db.close()
    for key in ("a", "b"):
        found = opened.get(key)
        if f"finished {key}" in done and not (key == "b" and "withdrawn m" in done):
            assert found is not None
            assert (found.state, found.steps) == (State.SUCCEEDED, (STEP,))
            assert opened.objects(key) == set(DIGESTS)
    assert "deleted b" not in done or opened.get("b") is None
    versions = opened.versions("m")
    assert sum(version.current for version in versions) == (1 if versions else 0)
    if "published a" in done and "chosen 1" not in done:
        assert versions[-1].compilation == "a"
    opened.close()


def check_keys(folder: Path, done: list[str]) -> None:
    opened = Keys(folder)
    made = [line.removeprefix("key ") for line in done if line.startswith("key ")]
    names = [name for name, _, _ in opened.all()]
    assert len(set(names)) == len(names)
    works = [opened.find(key) is not None for key in made]
    if len(made) == 3:
        assert [works[0], works[2]] == [False, True]
    elif len(made) == 1:
        assert works[0] is True
    assert "revoked two" not in done or "two" not in names
    file = folder / "keys.sqlite3"
    if file.exists() and file.stat().st_size:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    opened.close()


def check_tuning(folder: Path, done: list[str]) -> None:
    found = [record.choice["tile"] for record in TuningDatabase(folder, 2).records("machine")]
    assert found == sorted(found)[-2:]


def check_kernels(folder: Path, done: list[str]) -> None:
    opened = KernelStore(folder / "kernels", 7000)
    assert set(opened.find("caller", DIGESTS).values()) <= set(BLOBS)
    assert list((folder / "kernels" / "scratch").iterdir()) == []


CHECKS = {
    "store": check_store,
    "journal": check_journal,
    "keys": check_keys,
    "tuning": check_tuning,
    "kernels": check_kernels,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("part", PARTS)
def test_what_a_part_has_done_outlives_a_fault_at_any_of_its_writes(runner, disk, record_property, part, fault):
    here = disk / f"{part}-{fault}".replace(" ", "-")
    here.mkdir()
    whole = runner.run(part, here / "whole", lambda *_: None)
    assert whole.status == 0
    assert whole.writes
    CHECKS[part](here / "whole", whole.done)
    stride = 1 if os.environ.get("RELAXD_LONG_TESTS") else STRIDES.get(part, 1)
    places = range(0, len(whole.writes), stride)
    record_property("places", len(places))
    for at in places:
        folder = here / str(at)
        outcome = runner.run(part, folder, lambda number, call, at=at: FAULTS[fault](at, number, call))
        said = (part, fault, at, whole.writes[at].site, outcome.done, outcome.status)
        assert outcome.status in ((-9,) if fault == "killed" else (0, ERROR)), said
        # What is only for speed never lets its trouble through, once it is open.
        assert outcome.status != ERROR or part not in ("tuning", "kernels") or not outcome.done, said
        try:
            CHECKS[part](folder, outcome.done)
            # And all of it works when the fault is over.
            assert runner.run(part, folder, lambda *_: None).status == 0
        except Exception as error:
            raise AssertionError(said) from error
