"""A pool whose workers are scripts of frames, for what real workers are too slow or too honest for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from service.errors import WorkerCrashed
from service.nouns import Confinement, Signature
from service.pool import WorkerGone
from service.ring import ANSWERED, Layout, Ring, signals
from service.wire import Frame

STEP = {
    "index": 0, "stage": "import", "pass": None, "options": {}, "changed": True, "wall_ms": 1.0, "cpu_ms": 1.0, "ops": {},
    "functions": 1, "error": None, "notes": [], "details": {}, "figures": {},
}  # fmt: skip
SUCCEEDED = {"event": "succeeded", "verification": {"passed": True}, "manifest": {}, "timings": []}
CATALOGUE = {"passes": [], "recipes": [{"name": "none", "doc": "", "passes": []}], "default_recipe": "none"}


class FakeWorker:
    """Answers with the frames that `script` yields for the frames that it is sent."""

    def __init__(self, script: Callable[[Frame], Awaitable[list[Frame | BaseException]]]) -> None:
        self._script = script
        self._answers: asyncio.Queue[Frame | BaseException] = asyncio.Queue()
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.pid = 0

    async def send(self, frame: Frame) -> None:
        for answer in await self._script(frame):
            self._answers.put_nowait(answer)

    async def receive(self) -> Frame:
        answer = await self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def kill(self) -> None:
        if not self.exited.done():
            self.exited.set_result(-9)

    async def end(self) -> int | None:
        self.kill()
        return await self.exited

    async def fate(self, doing: str) -> WorkerCrashed:
        await self.end()
        return WorkerCrashed(f"The worker process died of SIGSEGV {doing}.", signal="SIGSEGV")


class FakeZygote:
    """Announces a Catalogue without passes."""

    announcement: ClassVar = {"catalogue": CATALOGUE, "toolchain": {"tvm": "fake"}}


class FakePool:
    """Lends workers that follow `script`."""

    def __init__(self, script: Callable[[Frame], Awaitable[list[Any]]]) -> None:
        self.script = script
        self.forks = 0
        self.work_dir = Path()  # of the worker that was forked last

    async def zygote(self, _role: str) -> FakeZygote:
        return FakeZygote()

    async def fork(self, _role: str, confinement: Confinement, _limits: Any, _descriptors: Any = ()) -> FakeWorker:
        self.forks += 1
        self.work_dir = Path(confinement.work_dir)
        return FakeWorker(self.script)


class RingWorker(FakeWorker):
    """A FakeWorker with a ring: what comes through it goes to `answer`, with the worker, the slot and the inputs."""

    def __init__(self, pool: RingPool, descriptors: list[int]) -> None:
        super().__init__(pool.script)
        self._pool = pool
        self._descriptors = descriptors
        self.asked = 0
        self.ring: Ring | None = None

    async def send(self, frame: Frame) -> None:
        if frame.body["op"] == "load":
            signature = Signature.from_json(frame.body["signature"])
            self.ring = Ring(Layout(signature), self._descriptors)
            asyncio.get_running_loop().add_reader(self.ring.requests, self._on_requests)
        await super().send(frame)

    def _on_requests(self) -> None:
        for _ in range(signals(self.ring.requests)):
            slot, request = self.ring.asked(self.asked)
            self.asked += 1
            self._pool.answer(self, slot, request)

    def echo(self, slot: int, request: Any) -> None:
        """Answers with the first input."""
        self.ring.memory_of_outputs(slot)[:4] = self.ring.memory_of_inputs(slot)[:4]
        self.ring.tell(slot, ANSWERED, sizes=request.shapes[0])
        os.eventfd_write(self.ring.answers, 1)

    def kill(self) -> None:
        if not self.exited.done():
            if self.ring is not None:
                asyncio.get_running_loop().remove_reader(self.ring.requests)
                self.ring.close()
            else:
                for descriptor in self._descriptors:
                    os.close(descriptor)
        super().kill()


class RingPool(FakePool):
    """Lends RingWorkers. `answer` is what they do with a request of the ring."""

    def __init__(self, script: Callable[[Frame], Awaitable[list[Any]]], answer: Callable[..., None]) -> None:
        super().__init__(script)
        self.answer = answer
        self.workers: list[RingWorker] = []

    async def fork(self, _role: str, confinement: Confinement, _limits: Any, descriptors: Any = ()) -> FakeWorker:
        self.forks += 1
        self.work_dir = Path(confinement.work_dir)
        self.workers.append(RingWorker(self, [os.dup(each) for each in descriptors]))
        return self.workers[-1]


GONE = WorkerGone("it closed its socket")
