"""The journal keeps what it was told, across restarts, and knows which objects are still needed."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from pathlib import Path

import pytest

from service.journal import SCHEMA_VERSION, Journal, JournalReader, JournalTooNew
from service.nouns import State
from tests.test_nouns import COMPILATION, STEP


def compilation(name: str, state: State = State.RUNNING):
    return dataclasses.replace(COMPILATION, id=name, state=state, steps=())


@pytest.fixture
def journal(tmp_path: Path):
    opened = Journal(tmp_path / "journal.sqlite3")
    yield opened
    opened.close()


def test_a_compilation_and_its_steps_are_there_after_a_restart(tmp_path):
    first = Journal(tmp_path / "j")
    first.begin(compilation("a"), ["model"])
    first.add_step("a", STEP, "snap0")
    first.add_step("a", dataclasses.replace(STEP, index=1), "snap1")
    first.update(compilation("a", State.SUCCEEDED), ["library"])
    first.close()
    second = Journal(tmp_path / "j")
    found = second.get("a")
    assert found == dataclasses.replace(
        compilation("a", State.SUCCEEDED), steps=(STEP, dataclasses.replace(STEP, index=1))
    )
    assert second.snapshot("a", 1) == "snap1"
    assert second.objects() == {"model", "snap0", "snap1", "library"}
    second.close()


def test_a_reader_beside_it_sees_each_change_as_soon_as_it_is_made(tmp_path):
    journal = Journal(tmp_path / "j")
    reader = JournalReader(tmp_path / "j")
    seen = {reader.changes}
    for state in (State.RUNNING, State.SUCCEEDED):
        journal.begin(compilation("a", state), [])
        assert reader.changes not in seen
        seen.add(reader.changes)
        assert reader.get("a").state is state
    journal.publish("m", "a")
    assert reader.changes not in seen
    assert [version.compilation for version in reader.versions("m")] == ["a"]
    assert reader.changes == reader.changes
    reader.close()
    journal.close()


def test_the_latest_is_the_one_that_was_asked_for_last(journal):
    for name in "abc":
        journal.begin(compilation(name), [])
    assert journal.latest() == "c"
    journal.touch("a")
    assert journal.latest() == "a"
    assert journal.ids(2) == ["a", "c"]


def test_a_new_attempt_takes_the_place_of_the_old_one(journal):
    journal.begin(compilation("a"), ["old"])
    journal.add_step("a", STEP, "snap")
    journal.begin(compilation("a"), ["new"])
    assert journal.get("a").steps == ()
    assert journal.objects("a") == {"new"}


def test_deleting_gives_up_the_claim_on_objects_that_others_still_need(journal):
    journal.begin(compilation("a"), ["shared", "own"])
    journal.begin(compilation("b"), ["shared"])
    journal.delete("a")
    assert journal.get("a") is None
    assert journal.needs("shared")
    assert not journal.needs("own")


def test_unfinished_are_those_that_were_queued_or_running(journal):
    for state in State:
        journal.begin(compilation(state.value, state), [])
    assert {found.id for found in journal.unfinished()} == {"queued", "running"}


def test_writers_in_threads_do_not_mix_their_transactions(journal):
    names = [f"c{index}" for index in range(40)]
    threads = [
        threading.Thread(target=lambda name=name: (journal.begin(compilation(name), [name]), journal.touch(name)))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(journal.ids(100)) == set(names)
    assert journal.objects() == set(names)


def test_a_journal_of_a_newer_version_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "j"
    Journal(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(JournalTooNew, match="start the newer relaxd"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_journal_of_an_older_version_is_brought_up_to_date_with_the_sizes_of_its_objects(tmp_path):
    path = tmp_path / "j"
    old = Journal(path)
    old.begin(compilation("a", State.SUCCEEDED), ["model", "library"])
    old.claim("a", "ann")
    old.close()
    db = sqlite3.connect(path)
    db.executescript(
        "ALTER TABLE objects DROP COLUMN bytes; ALTER TABLE compilations DROP COLUMN used_s; DROP TABLE clock; "
        "PRAGMA user_version = 3"
    )
    db.close()
    new = Journal(path, {"model": 10, "library": 200}.__getitem__)
    assert new.get("a") == compilation("a", State.SUCCEEDED)
    assert new.stored_bytes("ann") == 210
    assert new.unused() == ["a"]
    new.close()


def test_a_failed_write_leaves_the_journal_as_it_was(journal):
    journal.begin(compilation("a"), [])
    journal.add_step("a", STEP, "snap")
    with pytest.raises(sqlite3.IntegrityError):
        journal.add_step("a", STEP, "other")
    assert journal.snapshot("a", 0) == "snap"
    journal.touch("a")
