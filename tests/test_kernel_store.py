"""Kernels kept for later Compilations: bounded, checked, and each caller's own."""

from __future__ import annotations

import concurrent.futures
import os

import pytest

from service.kernel_store import KernelStore, is_key

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def files(folder):
    return sorted(path.name for path in folder.glob("*/" + "?" * 64))


def test_what_was_kept_is_found_after_a_restart(tmp_path):
    KernelStore(tmp_path, 1000).keep("me", A, b"code")
    store = KernelStore(tmp_path, 1000)
    assert store.find("me", [A, B]) == {A: b"code"}
    assert (store.found, store.missed) == (1, 1)


def test_one_caller_never_gets_what_anothers_worker_made(tmp_path):
    store = KernelStore(tmp_path, 1000)
    store.keep("me", A, b"mine")
    assert store.find("you", [A]) == {}
    store.keep("you", A, b"yours")
    assert store.find("me", [A]) == {A: b"mine"}


def test_a_callers_name_is_no_path(tmp_path):
    store = KernelStore(tmp_path / "kernels", 1000)
    store.keep("../../outside", A, b"code")
    assert store.find("../../outside", [A]) == {A: b"code"}
    assert [path.name for path in tmp_path.iterdir()] == ["kernels"]


def test_the_least_recently_used_goes_when_there_is_no_room(tmp_path):
    store = KernelStore(tmp_path, 3 * 132)
    for age, key in ((30, A), (20, B), (10, C)):
        store.keep("me", key, bytes(100))
        (file,) = tmp_path.glob(f"*/{key}")
        os.utime(file, (file.stat().st_mtime - age,) * 2)
    assert store.find("me", [A]) == {A: bytes(100)}
    store.keep("me", "d" * 64, bytes(100))
    assert files(tmp_path) == [A, C, "d" * 64]
    KernelStore(tmp_path, 2 * 132).keep("me", "e" * 64, bytes(100))
    assert len(files(tmp_path)) == 2


def test_what_is_larger_than_all_may_be_is_not_kept(tmp_path):
    store = KernelStore(tmp_path, 100)
    store.keep("me", A, bytes(100))
    assert files(tmp_path) == []
    store.keep("me", A, bytes(68))
    assert files(tmp_path) == [A]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"\0" + data[1:], lambda _: b""])
def test_what_is_damaged_is_gone(tmp_path, damage):
    store = KernelStore(tmp_path, 1000)
    store.keep("me", A, b"code")
    (file,) = tmp_path.glob(f"*/{A}")
    file.write_bytes(damage(file.read_bytes()))
    assert store.find("me", [A]) == {}
    assert files(tmp_path) == []


def test_a_folder_that_is_gone_costs_nothing_but_the_kernels(tmp_path):
    store = KernelStore(tmp_path / "kernels", 1000)
    (tmp_path / "kernels" / "scratch").rmdir()
    (tmp_path / "kernels").rmdir()
    store.keep("me", A, b"code")
    assert store.find("me", [A]) == {}


def test_many_threads_keep_and_find_at_once(tmp_path):
    store = KernelStore(tmp_path, 50 * 132)
    keys = [f"{number:064x}" for number in range(100)]

    def use(key):
        store.keep("me", key, key.encode() + bytes(36))
        return store.find("me", [key]).get(key)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(use, keys))
    assert all(each in (None, key.encode() + bytes(36)) for each, key in zip(found, keys, strict=True))
    assert len(files(tmp_path)) <= 50
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "A" * 64, "a" * 63, 5, None, ["a" * 64]])
def test_what_is_no_key(name):
    assert not is_key(name)
    assert is_key(A)
