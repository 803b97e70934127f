"""Loading, queueing, unloading and losing Artifacts, with workers that do as the test says. With real ones: api/, e2e/."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from service.errors import DeadlineExceeded, InternalError, Overloaded, Problem, WorkerCrashed
from service.nouns import Limits
from service.sessions import MAX_WAITING, RawTensor, Sessions
from service.wire import Frame
from tests.fakes import GONE, FakePool

X = RawTensor("float32", (1,), b"\0\0\0\0")
READY = Frame({"event": "ready"})


async def echo(frame: Frame):
    if frame.body["op"] == "load":
        return [READY]
    return [Frame({"event": "result", "outputs": frame.body["inputs"]}, frame.blobs)]


def run(scenario, script=echo, limits=Limits(loaded_sessions=2, infer_s=1.5)):  # noqa: B008
    async def inner():
        pool = FakePool(script)
        with tempfile.TemporaryDirectory() as scratch:
            sessions = Sessions(pool, limits, Path(scratch))  # type: ignore[arg-type]
            try:
                await scenario(sessions, pool)
            finally:
                await sessions.close()
            assert list(Path(scratch).iterdir()) == []

    asyncio.run(inner())


def library() -> Path:
    return Path(__file__)


def test_an_artifact_is_loaded_once_for_many_callers():
    async def scenario(sessions, pool):
        tensors = [RawTensor("float32", (1,), bytes([i, 0, 0, 0])) for i in range(50)]
        answers = await asyncio.gather(*(sessions.run("a", library, [tensor]) for tensor in tensors))
        assert [answer[0].data for answer in answers] == [tensor.data for tensor in tensors]
        assert pool.forks == 1

    run(scenario)


def test_the_least_recently_used_is_unloaded():
    async def scenario(sessions, pool):
        for key in "abacab":
            await sessions.run(key, library, [X])
        assert sessions.loaded() == 2
        assert pool.forks == 4  # a, b, c, then b again; a stayed

    run(scenario)


def test_a_hung_inference_ends_at_its_deadline_and_the_next_is_served():
    hung = []

    async def script(frame):
        if frame.body["op"] == "run" and not hung:
            hung.append(frame)
            return []
        return await echo(frame)

    async def scenario(sessions, pool):
        with pytest.raises(DeadlineExceeded):
            await sessions.run("a", library, [X])
        assert (await sessions.run("a", library, [X]))[0].data == X.data
        assert pool.forks == 2

    run(scenario, script)


@pytest.mark.parametrize("moment", ["load", "run"])
def test_a_crash_costs_its_request_only(moment):
    crashed = []

    async def script(frame):
        if frame.body["op"] == moment and not crashed:
            crashed.append(frame)
            return [GONE]
        return await echo(frame)

    async def scenario(sessions, _pool):
        with pytest.raises(WorkerCrashed):
            await sessions.run("a", library, [X])
        assert (await sessions.run("a", library, [X]))[0].data == X.data

    run(scenario, script)


@pytest.mark.parametrize(
    "answer",
    [
        Frame({"event": "result", "outputs": [{"dtype": "float32", "shape": [1]}]}),
        Frame({"event": "ready"}),
        Frame({"event": "result"}),
        Frame({"event": "result", "outputs": [{"dtype": "float32", "shape": [9]}]}, (b"\0\0\0\0",)),
        Frame({"event": "result", "outputs": [{"dtype": "object", "shape": [1]}]}, (b"\0" * 8,)),
        Frame({"event": "result", "outputs": 5}),
        Frame({"event": "failed"}),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error_of_ours_and_the_worker_goes(answer):
    async def script(frame):
        return [READY] if frame.body["op"] == "load" else [answer]

    async def scenario(sessions, pool):
        with pytest.raises(InternalError):
            await sessions.run("a", library, [X])
        with pytest.raises(InternalError):
            await sessions.run("a", library, [X])
        assert pool.forks == 2

    run(scenario, script)


def test_a_problem_of_the_model_keeps_the_worker():
    async def script(frame):
        problem = {"type": "/problems/execution-failed", "detail": "No."}
        return [READY] if frame.body["op"] == "load" else [Frame({"event": "failed", "problem": problem})]

    async def scenario(sessions, pool):
        for _ in range(2):
            with pytest.raises(Problem, match="No"):
                await sessions.run("a", library, [X])
        assert pool.forks == 1

    run(scenario, script)


def test_a_cancelled_caller_never_leaves_its_answer_to_the_next():
    async def script(frame):
        if frame.body["op"] == "load":
            return [READY]
        await asyncio.sleep(0.02)
        return await echo(frame)

    async def scenario(sessions, _pool):
        first = asyncio.create_task(sessions.run("a", library, [X]))
        await asyncio.sleep(0.01)
        first.cancel()
        other = RawTensor("float32", (1,), b"\1\2\3\4")
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await sessions.run("a", library, [other]))[0].data == other.data

    run(scenario, script)


def test_too_many_waiting_callers_are_refused():
    async def script(frame):
        return [READY] if frame.body["op"] == "load" else []

    async def scenario(sessions, _pool):
        waiting = [asyncio.create_task(sessions.run("a", library, [X])) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await sessions.run("a", library, [X])
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(scenario, script, Limits(infer_s=5))
