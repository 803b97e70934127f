"""A pool whose workers are scripts of frames, for what real workers are too slow or too honest for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from service.errors import WorkerCrashed
from service.nouns import Confinement
from service.pool import WorkerGone
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

    async def fork(self, _role: str, confinement: Confinement, _limits: Any) -> FakeWorker:
        self.forks += 1
        self.work_dir = Path(confinement.work_dir)
        return FakeWorker(self.script)


GONE = WorkerGone("it closed its socket")
