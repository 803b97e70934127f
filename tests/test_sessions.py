"""Loading, queueing, unloading and losing Artifacts, with workers that do as the test says. With real ones: api/, e2e/."""

from __future__ import annotations

import asyncio
import os
import struct
import tempfile
from pathlib import Path

import pytest

from service.errors import (
    DeadlineExceeded,
    ExecutionFailed,
    InternalError,
    Overloaded,
    Problem,
    ShuttingDown,
    UnknownCompilation,
)
from service.loading import Loadable
from service.nouns import Limits, Signature, TensorSpec
from service.ring import ANSWERED, FAILED, NO_ROOM, RawTensor
from service.serving_errors import RequestTimedOut, WorkerLost
from service.sessions import Sessions
from service.wire import Frame
from tests.fakes import GONE, RingPool, RingWorker

SIGNATURE = Signature((TensorSpec("x", ("n",), "float32"),), (TensorSpec("y", ("n",), "float32"),))
X = RawTensor("float32", (1,), b"\0\0\0\0")
READY = Frame({"event": "ready", "batch_rows": 1})
LIMITS = Limits(loaded_sessions=2, infer_s=1.0)


async def over_socket(frame: Frame):
    """Loads, and answers over the socket with what it gets."""
    if frame.body["op"] == "load":
        return [READY]
    return [Frame({"event": "result", "outputs": frame.body["inputs"]}, frame.blobs)]


def echo(worker: RingWorker, slot, request):
    worker.echo(slot, request)


def silent(_worker: RingWorker, _slot, _request):
    """Never answers."""


def run(scenario, answer=echo, limits=LIMITS, script=over_socket):
    async def inner():
        pool = RingPool(script, answer)
        before = len(os.listdir("/proc/self/fd"))
        with tempfile.TemporaryDirectory() as scratch:
            sessions = Sessions(pool, limits, Path(scratch))  # type: ignore[arg-type]
            try:
                await scenario(sessions, pool)
            finally:
                await sessions.close()
            assert list(Path(scratch).iterdir()) == []
        assert len(os.listdir("/proc/self/fd")) == before, "descriptors are left"

    asyncio.run(inner())


def load(key: str) -> Loadable:
    return Loadable(key, SIGNATURE, lambda: Path(__file__))


def number(value: int) -> RawTensor:
    return RawTensor("float32", (1,), struct.pack("<i", value))


async def ask(sessions, key: str, tensor: RawTensor = X, **rest) -> bytes:
    (output,) = (await sessions.run(load(key), [tensor], **rest)).outputs
    return bytes(output.data)


def test_an_artifact_is_loaded_once_for_many_callers():
    async def scenario(sessions, pool):
        tensors = [number(i) for i in range(200)]
        answers = await asyncio.gather(*(ask(sessions, "a", tensor) for tensor in tensors))
        assert answers == [tensor.data for tensor in tensors]
        assert pool.forks == 1

    run(scenario)


def test_the_least_recently_used_is_unloaded():
    async def scenario(sessions, pool):
        for key in "abacab":
            await ask(sessions, key)
        assert sessions.loaded() == 2
        assert pool.forks == 4  # a, b, c, then b again; a stayed

    run(scenario)


def test_what_takes_too_much_memory_is_unloaded_but_the_last():
    async def scenario(sessions, pool):
        for key in "ab":
            await ask(sessions, key)
        assert [session.loadable.key for session in sessions.sessions()] == ["b"]

    run(scenario, limits=Limits(loaded_bytes=1))


def test_replicas_share_the_calls():
    held = []

    def hold(worker, slot, request):
        held.append((worker, slot, request))

    async def scenario(sessions, pool):
        await asyncio.gather(sessions.preload(load("a"), 2))
        assert pool.forks == 2
        waiting = [asyncio.create_task(ask(sessions, "a", number(i))) for i in range(4)]
        await asyncio.sleep(0.05)
        assert len({worker for worker, _, _ in held}) == 2
        for worker, slot, request in held:
            worker.echo(slot, request)
        assert await asyncio.gather(*waiting) == [number(i).data for i in range(4)]
        await sessions.preload(load("a"), 1)
        await asyncio.sleep(0.05)
        assert len(sessions.sessions()[0].replicas) == 1

    run(scenario, hold)


def test_a_hung_inference_ends_at_its_deadline_and_the_next_is_served():
    asked = []

    def hang_once(worker, slot, request):
        asked.append(slot)
        if len(asked) > 2:
            worker.echo(slot, request)

    async def scenario(sessions, pool):
        first, second = await asyncio.gather(ask(sessions, "a"), ask(sessions, "a"), return_exceptions=True)
        assert isinstance(first, DeadlineExceeded)
        assert isinstance(second, WorkerLost)
        assert second.extensions["retry_after_s"] == 1
        assert await ask(sessions, "a", number(7)) == number(7).data
        assert pool.forks == 2

    run(scenario, hang_once)


def test_a_crash_costs_the_requests_that_the_worker_has_and_no_other():
    def die_at_nine(worker, slot, request):
        if bytes(worker.ring.memory_of_inputs(slot)[:4]) == number(9).data:
            worker.kill()
        elif not worker.exited.done():
            worker.echo(slot, request)

    async def scenario(sessions, pool):
        assert await ask(sessions, "a", number(1)) == number(1).data
        lost = await asyncio.gather(
            ask(sessions, "a", number(9)), ask(sessions, "b", number(2)), return_exceptions=True
        )
        assert isinstance(lost[0], WorkerLost)
        assert lost[0].status == 503
        assert lost[1] == number(2).data
        # Another worker is on its way before anybody asks.
        await asyncio.sleep(0.05)
        assert pool.forks == 3
        assert await ask(sessions, "a", number(3)) == number(3).data

    run(scenario, die_at_nine)


def test_a_worker_that_dies_while_it_loads_fails_who_waits_and_the_next_loads_again():
    loads = []

    async def script(frame):
        loads.append(frame)
        return [GONE] if len(loads) == 1 else [READY]

    async def scenario(sessions, _pool):
        with pytest.raises(WorkerLost):
            await ask(sessions, "a")
        assert sessions.loaded() == 0
        assert await ask(sessions, "a", number(4)) == number(4).data

    run(scenario, script=script)


def test_a_problem_of_loading_reaches_the_one_who_preloads():
    async def script(_frame):
        return [Frame({"event": "failed", "problem": {"type": "/problems/execution-failed", "detail": "No."}})]

    async def scenario(sessions, _pool):
        with pytest.raises(ExecutionFailed, match="No"):
            await sessions.preload(load("a"))
        assert sessions.loaded() == 0

    run(scenario, script=script)


def tell(status, **told):
    def answer(worker, slot, _request):
        worker.ring.tell(slot, status, **told)
        os.eventfd_write(worker.ring.answers, 1)

    return answer


def twice(worker, slot, request):
    worker.echo(slot, request)
    os.eventfd_write(worker.ring.answers, 5)


@pytest.mark.parametrize(
    "answer",
    [tell(9), tell(ANSWERED, sizes=[1 << 62]), tell(FAILED, problem=1 << 40), twice],
    ids=["status", "size", "problem", "more answers than requests"],
)
def test_an_answer_that_makes_no_sense_is_an_error_of_ours_and_the_worker_goes(answer):
    async def scenario(sessions, pool):
        for _ in range(2):
            with pytest.raises(InternalError):
                await ask(sessions, "a")
        assert pool.forks == 2

    run(scenario, answer)


def problem_of(text: bytes):
    def answer(worker, slot, _request):
        worker.ring.memory_of_outputs(slot)[: len(text)] = text
        tell(FAILED, problem=len(text))(worker, slot, _request)

    return answer


def test_a_problem_of_the_model_keeps_the_worker():
    async def scenario(sessions, pool):
        for _ in range(2):
            with pytest.raises(ExecutionFailed, match="No"):
                await ask(sessions, "a")
        assert pool.forks == 1

    run(scenario, problem_of(b'{"type": "/problems/execution-failed", "detail": "No."}'))


@pytest.mark.parametrize(
    "text",
    [
        b'{"type": "/problems/overloaded", "detail": "x", "retry_after_s": "1\\r\\nSet-Cookie: a"}',
        b'{"type": "/problems/not-authenticated", "detail": "x"}',
        b"[]",
        b"{",
        b"",
        b"[" * 9000,
    ],
)
def test_a_worker_speaks_of_the_model_and_of_nothing_else(text):
    async def scenario(sessions, _pool):
        with pytest.raises(InternalError) as caught:
            await ask(sessions, "a")
        assert "retry_after_s" not in caught.value.extensions

    run(scenario, problem_of(text))


def test_what_has_no_room_in_a_slot_goes_over_the_socket():
    def no_room(worker, slot, request):
        if request.shapes[0] == (2,):
            tell(NO_ROOM)(worker, slot, request)
        else:
            worker.echo(slot, request)

    async def scenario(sessions, _pool):
        large = RawTensor("float32", (3 << 20,), bytes(12 << 20))
        assert len(await ask(sessions, "a", large)) == 12 << 20
        assert len(await ask(sessions, "a", RawTensor("float32", (2,), bytes(8)))) == 8
        assert await ask(sessions, "a", number(5)) == number(5).data

    run(scenario, no_room)


@pytest.mark.parametrize(
    "result",
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
def test_a_frame_that_makes_no_sense_is_an_error_of_ours(result):
    async def script(frame):
        return [READY] if frame.body["op"] == "load" else [result]

    async def scenario(sessions, _pool):
        with pytest.raises(InternalError):
            await ask(sessions, "a", RawTensor("float32", (3 << 20,), bytes(12 << 20)))

    run(scenario, script=script)


def test_a_caller_who_has_gone_never_leaves_its_answer_to_the_next():
    def later(worker, slot, request):
        asyncio.get_running_loop().call_later(0.02, worker.echo, slot, request)

    async def scenario(sessions, pool):
        first = asyncio.create_task(ask(sessions, "a", number(1)))
        await asyncio.sleep(0.05 if not pool.workers else 0.01)
        first.cancel()
        second = ask(sessions, "a", number(2))
        assert await second == number(2).data
        assert pool.forks == 1

    run(scenario, later)


def test_a_timeout_is_kept_and_its_late_answer_dropped():
    held = []

    def hold(worker, slot, request):
        held.append((worker, slot, request))

    async def scenario(sessions, _pool):
        await sessions.preload(load("a"))
        with pytest.raises(RequestTimedOut):
            await ask(sessions, "a", number(1), timeout_us=10_000)
        waiting = asyncio.create_task(ask(sessions, "a", number(2)))
        await asyncio.sleep(0.02)
        assert held[0][2].deadline_ns > 0
        for worker, slot, request in held:
            worker.echo(slot, request)
        assert await waiting == number(2).data

    run(scenario, hold)


def test_too_many_waiting_callers_are_refused_at_once():
    async def scenario(sessions, _pool):
        waiting = [asyncio.create_task(ask(sessions, "a")) for _ in range(100)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded) as caught:
            await ask(sessions, "a")
        assert caught.value.extensions["retry_after_s"] == 1
        for task in waiting[70:]:
            task.cancel()
        await asyncio.gather(*waiting[70:], return_exceptions=True)
        # Those that gave up and were in the queue are not counted any more.
        again = asyncio.create_task(ask(sessions, "a"))
        await asyncio.sleep(0.02)
        assert not again.done()
        for task in [*waiting, again]:
            task.cancel()
        await asyncio.gather(*waiting, again, return_exceptions=True)

    run(scenario, silent, Limits(infer_s=1, queued_inferences=100))


def test_unloading_and_closing_answer_what_was_asked():
    def later(worker, slot, request):
        asyncio.get_running_loop().call_later(0.02, worker.echo, slot, request)

    async def scenario(sessions, _pool):
        waiting = [asyncio.create_task(ask(sessions, "a", number(i))) for i in range(100)]
        await asyncio.sleep(0.01)
        sessions.unload("a")
        more = asyncio.create_task(ask(sessions, "b", number(5)))
        await asyncio.sleep(0)
        await sessions.close()
        assert await asyncio.gather(*waiting) == [number(i).data for i in range(100)]
        assert await more == number(5).data
        with pytest.raises(ShuttingDown):
            await ask(sessions, "c")

    run(scenario, later)


def test_problems_are_raised_as_they_are():
    def missing():
        raise InternalError("The file is gone.")

    async def scenario(sessions, _pool):
        with pytest.raises(Problem, match="gone"):
            await sessions.run(Loadable("a", SIGNATURE, missing), [X])

    run(scenario)


@pytest.mark.parametrize("error", [InternalError("The file is gone."), FileNotFoundError("model.so")])
def test_what_was_deleted_while_it_was_loaded_is_unknown(error):
    def missing():
        raise error

    async def scenario(sessions, _pool):
        waiting = [
            asyncio.create_task(sessions.run(Loadable("a", SIGNATURE, missing, lambda: False), [X])) for _ in range(3)
        ]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(answer) for answer in answers] == [UnknownCompilation] * 3

    run(scenario)
