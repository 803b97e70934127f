"""Real zygotes and workers: forked, confined, killed, reaped."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from service.errors import InternalError, ShuttingDown, WorkerCrashed, WorkerKilled
from service.nouns import Confinement
from service.pool import Pool, WorkerGone
from service.wire import Frame, FrameLimits
from tests.conftest import child_pids

CONFINEMENT = Confinement(1 << 30, 60, 0)


def with_pool(scenario):
    async def run():
        pool = Pool()
        try:
            return await scenario(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


async def fork(pool: Pool):
    return await pool.fork("infer", CONFINEMENT, FrameLimits())


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def limits_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[:25].strip(): line[26:].split() for line in lines}


def test_a_worker_answers_over_its_socket_and_ends_when_it_closes():
    async def scenario(pool):
        worker = await fork(pool)
        await worker.send(Frame({"op": "load", "library_path": "/nothing/here"}))
        answer = await worker.receive()
        assert answer.body["event"] == "failed"
        assert answer.body["problem"]["type"] == "/problems/execution-failed"
        worker._writer.close()
        assert await asyncio.wait_for(worker.exited, 5) == 0

    with_pool(scenario)


def test_a_worker_is_confined_before_it_reads_anything():
    async def scenario(pool):
        worker = await fork(pool)
        await worker.send(Frame({"op": "load", "library_path": "/nothing"}))
        await worker.receive()
        status, limits = status_of(worker.pid), limits_of(worker.pid)
        assert status["NoNewPrivs"] == "1"
        assert limits["Max core file size"][:2] == ["0", "0"]
        assert limits["Max file size"][:2] == ["0", "0"]
        assert limits["Max cpu time"][0] == "60"
        assert 1 << 30 <= int(limits["Max data size"][0]) < 3 << 30
        assert os.getsid(worker.pid) == worker.pid
        open_files = [os.readlink(f"/proc/{worker.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{worker.pid}/fd")]
        assert sum(target.startswith("socket:") for target in open_files) == 1
        await worker.end()

    with_pool(scenario)


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (signal.SIGKILL, WorkerKilled),
        (signal.SIGTERM, WorkerKilled),
        (signal.SIGSEGV, WorkerCrashed),
        (signal.SIGXCPU, WorkerCrashed),
    ],
)
def test_the_fate_of_a_worker_is_told_by_its_signal(number, problem):
    async def scenario(pool):
        worker = await fork(pool)
        os.kill(worker.pid, number)
        with pytest.raises(WorkerGone):
            await worker.receive()
        fate = await worker.fate("in a test")
        assert isinstance(fate, problem)
        assert fate.extensions["signal"] == number.name
        assert "in a test" in fate.detail

    with_pool(scenario)


def test_a_stopped_worker_can_still_be_killed():
    async def scenario(pool):
        worker = await fork(pool)
        os.kill(worker.pid, signal.SIGSTOP)
        assert await asyncio.wait_for(worker.end(), 5) == -signal.SIGKILL
        assert not Path(f"/proc/{worker.pid}").exists()

    with_pool(scenario)


def test_a_hundred_workers_come_and_go_and_leave_nothing_open():
    async def scenario(pool):
        await (await fork(pool)).end()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            workers = await asyncio.gather(*(fork(pool) for _ in range(10)))
            assert len({worker.pid for worker in workers}) == 10
            await asyncio.gather(*(worker.end() for worker in workers))
        await asyncio.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) <= before + 1

    with_pool(scenario)


def test_a_cancelled_fork_leaves_no_worker_behind():
    async def scenario(pool):
        zygote = await pool.zygote("infer")
        for delay in (0, 0.0005, 0.002, 0.01):
            asking = asyncio.create_task(fork(pool))
            await asyncio.sleep(delay)
            asking.cancel()
            done = (await asyncio.gather(asking, return_exceptions=True))[0]
            if not isinstance(done, BaseException):
                await done.end()
        for _ in range(200):
            if not zygote._workers:
                break
            await asyncio.sleep(0.02)
        assert not zygote._workers

    with_pool(scenario)


def test_a_dead_zygote_is_replaced_and_its_workers_are_gone():
    async def scenario(pool):
        worker = await fork(pool)
        first = await pool.zygote("infer")
        os.kill(first._process.pid, signal.SIGKILL)
        with pytest.raises(WorkerGone):
            await worker.receive()
        assert isinstance(await worker.fate("in a test"), WorkerKilled)
        again = await fork(pool)
        assert again.pid != worker.pid
        await again.end()
        assert await pool.zygote("infer") is not first

    with_pool(scenario)


def test_after_closing_there_are_no_processes_and_no_new_workers():
    async def scenario(pool):
        worker = await fork(pool)
        zygote = (await pool.zygote("infer"))._process.pid
        await pool.close()
        assert not Path(f"/proc/{worker.pid}").exists() or status_of(worker.pid)["State"].startswith("Z")
        assert not Path(f"/proc/{zygote}").exists()
        with pytest.raises(ShuttingDown):
            await fork(pool)

    with_pool(scenario)


def test_closing_ends_a_zygote_that_has_not_started_yet():
    async def scenario(pool):
        before = child_pids(os.getpid())
        asked = asyncio.ensure_future(pool.zygote("compile"))
        async with asyncio.timeout(20):
            while child_pids(os.getpid()) == before:
                await asyncio.sleep(0.01)
        await pool.close()
        with pytest.raises(ShuttingDown):
            await asked
        assert child_pids(os.getpid()) == before

    with_pool(scenario)


def test_a_zygote_that_cannot_start_is_a_problem():
    async def scenario(pool):
        with pytest.raises(InternalError, match="did not start"):
            await pool.zygote("no-such-zygote")
        assert pool.states() == {"no-such-zygote": "failed"}

    with_pool(scenario)
