"""Admission, twins, cancelling and deleting, with workers that do as the test says. The same with real workers: api/, e2e/."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
from pathlib import Path

import pytest

from service.compilations import Compilations
from service.errors import Overloaded, UnknownCompilation
from service.journal import Journal
from service.nouns import Limits, ModelFormat, PassSpec, Recipe, State, Target, Verify
from service.records import Model, Request
from service.store import open_store
from service.tuning_database import TuningDatabase
from service.wire import Frame
from tests.fakes import GONE, STEP, SUCCEEDED, FakePool


class World:
    """Compilations over a real store and journal, and a pool of scripted workers."""

    def __init__(self, folder: Path, script, limits: Limits) -> None:
        self.store = open_store(str(folder))
        self.journal = Journal(folder / "journal", self.store.size)
        self.pool = FakePool(lambda frame: script(frame, self.pool.work_dir))
        self.compilations = Compilations(
            self.journal,
            self.store,
            self.pool,
            limits,
            TuningDatabase(folder, limits.tuning_records),  # type: ignore[arg-type]
        )

    def request(self, name: str = "m", passes: int = 0) -> Request:
        content = name.encode()
        file = self.store.scratch / f"upload-{os.urandom(4).hex()}"
        file.write_bytes(content)
        model = Model(hashlib.sha256(content).hexdigest(), ModelFormat.EXPORTED_PROGRAM, len(content), name)
        return Request(model, file, Recipe((PassSpec("p", {}),) * passes), Verify.ARTIFACT)

    def close(self) -> None:
        self.journal.close()
        self.store.close()


async def good_worker(frame: Frame, folder: Path):
    (folder / "model.so").write_bytes(b"library")
    return [Frame({"event": "step", "step": STEP}, (b"{}",)), Frame(SUCCEEDED)]


def run(tmp_path, scenario, script=good_worker, limits=Limits(concurrent_compilations=1, queued_compilations=2)):  # noqa: B008
    async def inner():
        world = World(tmp_path / "data", script, limits)
        try:
            return await scenario(world)
        finally:
            await world.compilations.close()
            world.close()

    return asyncio.run(inner())


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def compiled(world: World, request: Request):
    compilation, created = await world.compilations.submit(request)
    return await world.compilations.wait(compilation.id, 10), created


def test_a_success_is_answered_from_the_store_and_leaves_no_upload(tmp_path):
    async def scenario(world):
        first, created = await compiled(world, world.request())
        second, created_again = await compiled(world, world.request())
        assert (created, created_again) == (True, False)
        assert first.state is State.SUCCEEDED
        assert first == second
        assert world.pool.forks == 1
        assert list(world.store.scratch.iterdir()) == []

    run(tmp_path, scenario)


def test_a_failure_is_tried_again_when_sent_again(tmp_path):
    attempts = []

    async def script(frame, folder):
        attempts.append(frame)
        return [GONE] if len(attempts) == 1 else await good_worker(frame, folder)

    async def scenario(world):
        first, _ = await compiled(world, world.request())
        assert first.state is State.FAILED
        assert first.problem["type"] == "/problems/worker-crashed"
        second, created = await compiled(world, world.request())
        assert created
        assert second.state is State.SUCCEEDED
        assert second.id == first.id

    run(tmp_path, scenario, script)


def test_beyond_the_queue_a_request_is_refused_but_twins_are_not(tmp_path):
    async def script(_frame, _folder):
        return []

    async def scenario(world):
        for name in "abc":
            await world.compilations.submit(world.request(name))
        refused = world.request("d")
        with pytest.raises(Overloaded):
            await world.compilations.submit(refused)
        assert not refused.model_file.exists()
        _, created = await world.compilations.submit(world.request("a"))
        assert not created
        await until(lambda: world.compilations.counts() == {"running": 1, "queued": 2})

    run(tmp_path, scenario, script)


@pytest.mark.parametrize("when", ["queued", "running"])
def test_cancelling_works_at_any_time_and_frees_the_place(tmp_path, when):
    async def script(_frame, _folder):
        return []

    async def scenario(world):
        first, _ = await world.compilations.submit(world.request("first"))
        second, _ = await world.compilations.submit(world.request("second"))
        await until(lambda: world.compilations.counts() == {"running": 1, "queued": 1})
        by_state = {world.compilations.get(one.id).state.value: one.id for one in (first, second)}
        victim = by_state.pop(when)
        await world.compilations.delete(victim)
        assert world.journal.get(victim).state is State.CANCELLED
        (other,) = by_state.values()
        await until(lambda: world.compilations.get(other).state is State.RUNNING)

    run(tmp_path, scenario, script)


def test_a_cancel_in_the_first_moment_leaves_nothing_half_recorded(tmp_path):
    async def scenario(world):
        for turns in range(12):
            compilation, _ = await world.compilations.submit(world.request(f"m{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await world.compilations.delete(compilation.id)
            assert world.journal.get(compilation.id).state is State.CANCELLED
        assert world.journal.unfinished() == []

    run(tmp_path, scenario)


def test_deleting_keeps_what_another_compilation_needs(tmp_path):
    async def scenario(world):
        one, _ = await compiled(world, world.request("same"))
        other, _ = await compiled(world, world.request("same", passes=1))
        await world.compilations.delete(one.id)
        assert world.compilations.library(other.artifact).read_bytes() == b"library"
        assert await world.compilations.snapshot(other.id, 0) == {}
        await world.compilations.delete(other.id)
        assert world.store.digests() == set()
        with pytest.raises(UnknownCompilation):
            await world.compilations.delete(other.id)

    run(tmp_path, scenario)


HOSTILE = [
    [Frame({"event": "step", "step": {**STEP, "index": 7}}, (b"{}",))],
    [
        Frame({"event": "step", "step": STEP}, (b"{}",)),
        Frame({"event": "step", "step": {**STEP, "index": 1}}, (b"{}",)),
    ],
    [Frame({"event": "step", "step": STEP})],
    [Frame({"event": "step", "step": {}}, (b"{}",))],
    [Frame({"event": "step", "step": {**STEP, "stage": "nowhere"}}, (b"{}",))],
    [Frame({"event": "step", "step": {**STEP, "ops": 5}}, (b"{}",))],
    [Frame({"event": "signature", "signature": {"inputs": 5}})],
    [Frame({"event": "begin"})],
    [Frame({"event": "dance"})],
    [Frame({})],
    [Frame({"event": "failed"})],
    [Frame({"event": "failed", "problem": 5})],
    [Frame(SUCCEEDED)],
    [Frame({"event": "succeeded"})],
]


@pytest.mark.parametrize("answers", HOSTILE, ids=range(len(HOSTILE)))
def test_a_worker_that_makes_no_sense_fails_its_compilation_only(tmp_path, answers):
    async def script(frame, folder):
        if b"hostile" in (folder / frame.body["job"]["model_path"]).read_bytes():
            return [*answers, GONE]
        return await good_worker(frame, folder)

    async def scenario(world):
        hostile, _ = await compiled(world, world.request("hostile"))
        assert hostile.state is State.FAILED
        assert hostile.problem["type"] in ("/problems/internal-error", "/problems/worker-crashed")
        good, _ = await compiled(world, world.request("good"))
        assert good.state is State.SUCCEEDED
        assert list(world.store.scratch.iterdir()) == []

    run(tmp_path, scenario, script)


RECORD = {"key": "dense-0123456789abcdef", "choice": {"rows": 6}, "gain": 1.5}


def told(record=None, **progress):
    known = {"budget_s": 5, "seconds_left": 4, "kernels": 2, "kernels_done": 1, "candidates": 3, "best_gain": 1.5}
    return Frame({"event": "tuning", "progress": known | progress, "record": record})


def test_what_a_tuning_worker_has_told_is_kept_when_it_dies_and_given_to_the_next(tmp_path):
    jobs = []

    async def script(frame, folder):
        jobs.append(frame.body["job"]["tuning"])
        return [told(RECORD), told(best_gain=2), GONE] if len(jobs) == 1 else await good_worker(frame, folder)

    async def scenario(world):
        dead, _ = await compiled(world, dataclasses.replace(world.request(), tune_s=5.0))
        assert dead.state is State.FAILED
        assert (dead.tuning.budget_s, dead.tuning.kernels_done, dead.tuning.best_gain) == (5.0, 1, 2)
        assert world.journal.get(dead.id).tuning == dead.tuning
        plain, _ = await compiled(world, world.request())
        assert plain.id != dead.id
        elsewhere = world.request("other")
        recipe = dataclasses.replace(elsewhere.recipe, target=Target(threads=2))
        await compiled(world, dataclasses.replace(elsewhere, recipe=recipe))
        assert jobs == [
            {"budget_s": 5.0, "records": []}, {"budget_s": None, "records": [RECORD]}, {"budget_s": None, "records": []}
        ]  # fmt: skip

    run(tmp_path, scenario, script)


@pytest.mark.parametrize(
    ("tune_s", "answer"),
    [
        (None, told(RECORD)),
        (5.0, told({**RECORD, "choice": {"rows": 10**9}})),
        (5.0, told(RECORD, kernels=-1)),
        (5.0, Frame({"event": "tuning"})),
        (5.0, [told({**RECORD, "key": f"dense-{number:016x}"}) for number in range(4)]),
    ],
    ids=range(5),
)
def test_tuning_that_makes_no_sense_fails_the_compilation(tmp_path, monkeypatch, tune_s, answer):
    monkeypatch.setattr("service.run.MAX_RECORDS", 3)

    async def script(_frame, _folder):
        return [*(answer if isinstance(answer, list) else [answer]), GONE]

    async def scenario(world):
        found, _ = await compiled(world, dataclasses.replace(world.request(), tune_s=tune_s))
        assert found.problem["type"] == "/problems/internal-error"

    run(tmp_path, scenario, script)


@pytest.mark.parametrize("trick", ["symlink", "directory", "fifo", "too large"])
def test_a_library_that_is_not_a_plain_file_within_the_limit_is_refused(tmp_path, trick):
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret")

    async def script(frame, folder):
        library = folder / "model.so"
        library.unlink()
        {
            "symlink": lambda: library.symlink_to(secret),
            "directory": library.mkdir,
            "fifo": lambda: os.mkfifo(library),
            "too large": lambda: library.write_bytes(bytes(101)),
        }[trick]()
        return [Frame(SUCCEEDED)]

    async def scenario(world):
        found, _ = await compiled(world, world.request())
        assert found.state is State.FAILED
        assert hashlib.sha256(b"a secret").hexdigest() not in world.store.digests()

    run(tmp_path, scenario, script, Limits(concurrent_compilations=1, library_bytes=100))


def test_recovery_fails_what_was_running_and_sweeps_what_nothing_needs(tmp_path):
    async def script(_frame, _folder):
        return []

    async def first(world):
        orphan = world.store.put(b"orphan")
        compilation, _ = await world.compilations.submit(world.request())
        await until(lambda: world.compilations.get(compilation.id).state is State.RUNNING)
        return compilation.id, orphan

    async def second(world):
        world.journal.update(
            world.journal.get(key).__class__(
                **{**vars(world.journal.get(key)), "state": State.RUNNING, "problem": None}
            )
        )
        world.compilations.recover()
        assert world.compilations.get(key).problem["type"] == "/problems/interrupted"
        assert orphan not in world.store.digests()

    key, orphan = run(tmp_path, first, script)
    run(tmp_path, second, script)
