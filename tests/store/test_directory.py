"""The store: what is in it is whole, and only one server has it."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys

import pytest

from service.errors import StorageFull, StoreDamaged
from service.store import open_store
from service.store.directory import DirectoryStore, StoreBusy


@pytest.fixture
def store(tmp_path):
    opened = open_store(f"file:{tmp_path / 'store'}")
    yield opened
    opened.close()


def test_bytes_are_found_under_their_digest(store):
    digest = store.put(b"hello")
    assert digest == hashlib.sha256(b"hello").hexdigest()
    assert store.read(digest) == b"hello"
    assert store.path(digest).read_bytes() == b"hello"
    assert store.put(b"hello") == digest
    assert store.digests() == {digest}


def test_a_file_is_adopted_without_a_copy(store):
    file = store.scratch / "new"
    file.write_bytes(b"x" * 1000)
    inode = file.stat().st_ino
    digest = hashlib.sha256(b"x" * 1000).hexdigest()
    store.adopt(file, digest)
    assert not file.exists()
    assert store.path(digest).stat().st_ino == inode


def test_adopting_what_is_there_already_removes_the_file(store):
    digest = store.put(b"abc")
    file = store.scratch / "again"
    file.write_bytes(b"abc")
    store.adopt(file, digest)
    assert not file.exists()


def test_objects_cannot_be_changed_by_accident(store):
    assert store.path(store.put(b"abc")).stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_object_is_noticed_and_named(store, harm):
    digest = store.put(b"precious")
    path = store.path(digest)
    path.chmod(0o600)
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(b"precioux" if harm == "flip" else b"prec")
    for read in (store.read, store.path):
        with pytest.raises(StoreDamaged, match=digest[:16]):
            read(digest)


def test_deleting_is_idempotent(store):
    digest = store.put(b"abc")
    store.delete(digest)
    store.delete(digest)
    assert store.digests() == set()


def test_a_second_server_is_refused_until_the_first_has_ended(tmp_path):
    first = DirectoryStore(tmp_path)
    with pytest.raises(StoreBusy, match="--data"):
        DirectoryStore(tmp_path)
    first.close()
    DirectoryStore(tmp_path).close()


def test_the_scratch_folder_is_emptied_when_the_store_is_opened(tmp_path):
    first = DirectoryStore(tmp_path)
    (first.scratch / "half-written").write_bytes(b"...")
    first.close()
    second = DirectoryStore(tmp_path)
    assert list(second.scratch.iterdir()) == []
    second.close()


def test_a_full_disk_is_said_and_leaves_nothing_behind(store, monkeypatch):
    def no_room(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(StorageFull, match="No space left"):
        store.put(b"too much")
    monkeypatch.undo()
    assert list(store.scratch.iterdir()) == []
    assert store.digests() == set()


def test_a_kill_while_writing_leaves_whole_objects_or_none(tmp_path):
    writer = (
        "import itertools, sys; from pathlib import Path; from service.store.directory import DirectoryStore\n"
        "store = DirectoryStore(Path(sys.argv[1])); print('go', flush=True)\n"
        "for i in itertools.count(): store.put(bytes([i % 251]) * (100_000 + i))"
    )
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", writer, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.kill()
        process.wait()
        store = DirectoryStore(tmp_path)
        for digest in store.digests():
            store.read(digest)
        store.close()


def test_what_has_rotted_is_made_whole_when_it_is_put_or_adopted_again(tmp_path):
    store = open_store(str(tmp_path))
    try:
        for content in (b"", b"rotten", b"longer than it was before"):
            digest = store.put(b"content")
            file = tmp_path / "objects" / digest[:2] / digest
            file.chmod(0o644)
            file.write_bytes(content)
            assert store.put(b"content") == digest
            assert store.read(digest) == b"content"
            file.chmod(0o644)
            file.write_bytes(content)
            again = store.scratch / "again"
            again.write_bytes(b"content")
            store.adopt(again, digest)
            assert store.read(digest) == b"content"
            assert not again.exists()
    finally:
        store.close()
