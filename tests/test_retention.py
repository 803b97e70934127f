"""Stored bytes and their age: what is refused, what makes room, and what never does."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Collection
from pathlib import Path

import pytest

from service import keys
from service.errors import StorageFull
from service.nouns import Limits, State
from service.retention import Retention
from service.serving_errors import QuotaExceeded
from service.settings import Settings
from tests.test_compilations import World, compiled, good_worker, run


@contextlib.contextmanager
def caller(name: str):
    token = keys.current.set(keys.Caller(name, frozenset({"compile"})))
    try:
        yield
    finally:
        keys.current.reset(token)


def retention(world: World, *, evict: bool = False, loaded: Collection[str] = (), **limits: float) -> Retention:
    settings = Settings(limits=dataclasses.replace(Limits(), **limits), evict=evict)
    return Retention(world.journal, world.store, world.compilations, lambda key: key in loaded, settings)


async def add(world: World, name: str, who: str | None = None) -> str:
    with caller(who) if who else contextlib.nullcontext():
        return (await compiled(world, world.request(name)))[0].id


# What each of these stores: the library and the snapshot, which all share, and its model, which has as many bytes as its name.
SHARED = len(b"library")


def test_a_caller_may_store_its_quota_and_not_one_byte_more(tmp_path):
    async def scenario(world):
        await add(world, "aaaa", "ann")
        used = world.journal.stored_bytes("ann")
        assert used >= SHARED + 4
        limited = retention(world, caller_stored_bytes=used + 3)
        with caller("ann"):
            for name in ("bb", "bbb"):
                await limited.make_room(world.request(name))
            with pytest.raises(QuotaExceeded) as raised:
                await limited.make_room(world.request("bbbb"))
            assert raised.value.extensions == {"quota": "stored_bytes", "limit": used + 3, "used_bytes": used}
            # What is there already adds nothing.
            await retention(world, caller_stored_bytes=1).make_room(world.request("aaaa"))
        with caller("bob"):
            await limited.make_room(world.request("b" * (used + 3)))
            with pytest.raises(QuotaExceeded):
                await limited.make_room(world.request("b" * (used + 4)))

    run(tmp_path, scenario)


def test_the_server_stores_its_limit_and_not_one_byte_more(tmp_path):
    async def scenario(world):
        await add(world, "aaaa")
        used = world.store.used_bytes()
        assert used == sum(path.stat().st_size for path in (tmp_path / "data" / "objects").glob("*/*"))
        limited = retention(world, stored_bytes=used + 3)
        await limited.make_room(world.request("bbb"))
        with pytest.raises(StorageFull):
            await limited.make_room(world.request("bbbb"))

    run(tmp_path, scenario)


def test_eviction_takes_what_was_used_longest_ago_and_nothing_that_is_needed(tmp_path):
    async def scenario(world):
        made, loaded = {}, []
        limited = retention(world, evict=True, loaded=loaded, caller_stored_bytes=1)
        for name in ("older", "old", "published", "loaded", "shared", "new"):
            made[name] = await add(world, name, "ann")
            await limited._note_uses()
        made["foreign"] = await add(world, "foreign", "bob")
        assert await add(world, "shared", "bob") == made["shared"]
        assert world.journal.publish("m", made["published"])
        loaded.append(made["loaded"])

        def there(name: str) -> bool:
            return world.journal.get(made[name]) is not None

        # Room for two bytes: the model of the one that was used longest ago is enough.
        stored = world.journal.stored_bytes("ann")
        less = retention(world, evict=True, loaded=loaded, caller_stored_bytes=stored)
        with caller("ann"):
            await less.make_room(world.request("xx"))
        assert [name for name in made if not there(name)] == ["older"]
        with caller("ann"), pytest.raises(QuotaExceeded):
            await limited.make_room(world.request("more than there can ever be room for"))
        assert [name for name in made if not there(name)] == ["older"]
        with caller("ann"), pytest.raises(QuotaExceeded):
            await limited.make_room(world.request("x"))
        # All that could go has gone: what others have, what is published and what is loaded has not.
        assert [name for name in made if there(name)] == ["published", "loaded", "shared", "foreign"]
        assert world.journal.is_claimed(made["shared"], "bob")
        assert not world.journal.is_claimed(made["shared"], "ann")
        assert world.store.digests() == world.journal.objects()

    run(tmp_path, scenario)


def test_an_eviction_makes_room_for_an_upload(tmp_path):
    async def scenario(world):
        first = await add(world, "first", "ann")
        limited = retention(world, evict=True, caller_stored_bytes=world.journal.stored_bytes("ann") + 1)
        with caller("ann"):
            await limited.make_room(world.request("second"))
        assert world.journal.get(first) is None
        kept = await add(world, "third", "bob")
        whole = retention(world, evict=True, stored_bytes=world.store.used_bytes() + 1)
        await whole.make_room(world.request("fourth"))
        assert world.journal.get(kept) is None

    run(tmp_path, scenario)


def test_what_runs_is_neither_evicted_nor_expired(tmp_path):
    async def waiting(frame, folder: Path):
        await asyncio.sleep(60)
        return await good_worker(frame, folder)

    async def scenario(world):
        compilation, _ = await world.compilations.submit(world.request("busy"))
        while world.compilations.get(compilation.id).state is not State.RUNNING:
            await asyncio.sleep(0.01)
        limited = retention(world, evict=True, stored_bytes=1, expire_s=1e-9)
        with pytest.raises(StorageFull):
            await limited.make_room(world.request("x"))
        await limited.sweep()
        assert world.compilations.get(compilation.id).state is State.RUNNING

    run(tmp_path, scenario, waiting)


def test_what_was_not_used_for_long_expires_by_the_time_that_servers_ran(tmp_path):
    async def scenario(world):
        old, used, published = [await add(world, name) for name in ("old", "used", "published")]
        world.journal.publish("m", published)
        limited = retention(world, expire_s=100.0)
        world.journal.let_pass(99.0, [])
        await limited.sweep()
        assert world.journal.get(old) is not None
        world.compilations.get(used)
        world.journal.let_pass(2.0, [])
        await limited.sweep()
        assert world.journal.get(old) is None
        assert world.journal.get(used) is not None
        assert world.journal.get(published) is not None
        world.journal.let_pass(101.0, [])
        await limited.sweep()
        assert world.journal.get(used) is None
        assert world.journal.get(published) is not None
        assert world.store.digests() == world.journal.objects()

    run(tmp_path, scenario)


def test_a_compilation_is_not_published_once_it_is_gone_nor_deleted_once_it_is_published(tmp_path):
    async def scenario(world):
        key = await add(world, "a")
        assert world.journal.publish("m", key)
        assert not world.journal.delete(key)
        await world.compilations.forget(key)
        assert world.journal.get(key) is not None
        world.journal.withdraw("m")
        assert world.journal.delete(key)
        assert not world.journal.publish("m", key)
        assert world.journal.versions("m") == []

    run(tmp_path, scenario)
