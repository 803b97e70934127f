"""Worker processes: started, fed, watched and killed.

The web process execs a few zygotes and asks them to fork a worker for each job. A worker is reached over a socket
pair and held by a pidfd, so a kill can never hit another process that got the same pid.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from service.errors import (
    DeadlineExceeded,
    InternalError,
    JsonObject,
    ShuttingDown,
    WorkerCrashed,
    WorkerKilled,
    problem_from_json,
)
from service.nouns import Confinement
from service.orphans import reap_orphan
from service.position import crash
from service.wire import Frame, FrameLimits, WireError, read_frame, write_frame

log = logging.getLogger(__name__)

MAX_PACKET = 65536
MAX_ANNOUNCEMENT = 16 << 20
START_S = 120.0

# Which zygote forks the workers of a role.
ZYGOTE_OF = {"compile": "compile", "infer": "infer", "link": "infer"}

# What a zygote may know of the server's environment: where libraries are, never a secret.
_PASSED_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TMPDIR", "HOME")
# A fork of a process whose libraries have started thread pools can hang.
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS")

# Signals that a process brings on itself by what it does; any other came from outside.
_OWN_FAULTS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU}
_OWN_FAULTS |= {signal.SIGSYS, signal.SIGXFSZ, signal.SIGTRAP}


@dataclass(frozen=True)
class Deadline:
    """How long a worker may take for a job, and what its caller is told when it takes longer."""

    seconds: float
    message: str

    def problem(self) -> DeadlineExceeded:
        return DeadlineExceeded(self.message, limit_s=self.seconds)


class WorkerGone(Exception):
    """The worker ended, or sent what is not a frame, before it had answered."""


def checked(frame: Frame, expected: str) -> Frame:
    """The frame of the expected event. Raises the Problem that it reports, InternalError when it is neither."""
    event, problem = frame.body.get("event"), frame.body.get("problem")
    if event == "failed" and isinstance(problem, dict):
        raise problem_from_json(problem)
    if event != expected:
        raise InternalError(f"A worker sent a message that makes no sense (event {str(event)[:180]!r}).")
    return frame


class Worker:
    """One forked process and the socket to it. Not for use by two tasks at once."""

    def __init__(self, limits: FrameLimits) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.forked: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[int | None] = loop.create_future()
        self._limits = limits
        self._pidfd = -1
        self._killed_by_us = False
        self._reader = asyncio.StreamReader()
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, sock: socket.socket) -> None:
        """Takes over our end of the socket pair; nothing can be sent or received before."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=sock, limit=1 << 20)

    async def send(self, frame: Frame) -> None:
        """Raises WorkerGone."""
        if self._writer is None:
            raise WorkerGone("the worker is not connected")
        try:
            await write_frame(self._writer, frame)
        except OSError as error:
            raise WorkerGone(str(error)) from error

    async def receive(self) -> Frame:
        """The next frame from the worker. Raises WorkerGone."""
        try:
            frame = await read_frame(self._reader, self._limits)
        except (OSError, WireError) as error:
            raise WorkerGone(str(error)) from error
        if frame is None:
            raise WorkerGone("the worker closed its socket")
        return frame

    def kill(self) -> None:
        """SIGKILL, which always works; harmless when it is gone already."""
        if not self.exited.done():
            self._killed_by_us = True
            self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it stays as it is and uses no CPU."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def end(self) -> int | None:
        """Kills the worker if it still runs, waits until it is gone, frees the socket; returns its exit code."""
        self.kill()
        if self._writer is not None:
            self._writer.close()
        return await self.exited

    async def fate(self, doing: str) -> WorkerCrashed | WorkerKilled | InternalError:
        """The Problem for a worker that ended by itself while `doing` something. Call after WorkerGone."""
        # A worker whose socket is gone but which lives on would be waited for without end.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.exited), 1.0)
        status = await self.end()
        if status is None:
            return WorkerKilled(f"The worker process was lost together with its zygote {doing}. Send it again.")
        if status >= 0 or self._killed_by_us:
            return InternalError(f"The worker ended without an answer {doing}.")
        name = signal.Signals(-status).name
        if -status in _OWN_FAULTS:
            return crash(name, doing)
        return WorkerKilled(
            f"The worker process was killed by {name} from outside {doing}. Send the request again; "
            "if it happens again, the machine may lack memory.",
            signal=name,
        )

    def note_fork(self, pid: int, pidfd: int) -> None:
        """For the Zygote: the process exists. The one who asked for it may have been cancelled meanwhile."""
        self.pid, self._pidfd = pid, pidfd
        if not self.forked.done():
            self.forked.set_result(None)

    def note_exit(self, status: int | None) -> None:
        """For the Zygote: the process is gone and reaped; `status` is None when the zygote died first.

        The socket stays open otherwise: the last frame of a worker may arrive after the news of its end.
        """
        if status is None and self._writer is not None:
            self._writer.close()
        if not self.forked.done():
            self.forked.set_exception(InternalError("The zygote died while it forked a worker. Send it again."))
        if self._pidfd >= 0 and status is None:
            reap_orphan(self._pidfd)
        elif self._pidfd >= 0:
            os.close(self._pidfd)
        self.exited.set_result(status)


class Zygote:
    """One running zygote process and the workers that it has forked."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self.name = name
        self.announcement: JsonObject = {}
        self._process = process
        self._control = control
        self._numbers = itertools.count()
        self._workers: dict[int, Worker] = {}
        self.alive = True
        self.died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watched = False

    @classmethod
    async def start(cls, name: str, *, allow_weak_sandbox: bool) -> Zygote:
        """Execs the zygote and waits until it has imported what it needs. Raises InternalError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # never import from the folder that the server was started in
                "-m",
                "service.worker",
                name,
                str(theirs.fileno()),
                *(["--allow-weak-sandbox"] if allow_weak_sandbox else []),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=zygote_environment(),
                limit=MAX_ANNOUNCEMENT,
            )
            unless_started.pop_all()
        zygote = cls(name, process, ours)
        try:
            zygote.announcement = await asyncio.wait_for(_read_announcement(process), START_S)
        except BaseException as error:
            ours.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, (ValueError, TimeoutError)):
                raise InternalError(f"The {name} zygote did not start; its error output is in the log.") from error
            raise
        asyncio.get_running_loop().add_reader(ours.fileno(), zygote._on_packet)
        return zygote

    async def fork(
        self, role: str, confinement: Confinement, limits: FrameLimits, descriptors: Sequence[int] = ()
    ) -> Worker:
        """A new worker, confined, with copies of `descriptors`, and waiting for its first frame.

        Raises InternalError when the zygote is gone.
        """
        number = next(self._numbers)
        worker = self._workers[number] = Worker(limits)
        request = {"op": "fork", "worker": number, "role": role, "confinement": confinement.to_json()}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                await self._send(json.dumps(request).encode(), [theirs.fileno(), *descriptors])
            await worker.forked
        except BaseException as error:
            # A worker that comes into being all the same reads the end of its socket and ends.
            ours.close()
            if isinstance(error, OSError):
                raise InternalError(f"The {self.name} zygote is gone: {error}.") from error
            raise
        await worker.connect(ours)
        return worker

    async def _send(self, packet: bytes, descriptors: Sequence[int]) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        for _ in range(200):
            try:
                self._control.sendmsg([packet], ancillary)
            except BlockingIOError:
                await asyncio.sleep(0.01)
            else:
                return
        raise OSError("its control socket stays full")

    def _on_packet(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._on_death()
            return
        message = json.loads(data)
        if message["op"] == "forked":
            self._workers[message["worker"]].note_fork(message["pid"], descriptors[0])
        else:
            self._workers.pop(message["worker"]).note_exit(message["status"])

    def _on_death(self) -> None:
        self.alive = False
        if not self.died.done():
            self.died.set_result(None)
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        # For a zygote that lives, the sign to end.
        self._control.close()
        for worker in self._workers.values():
            # Its workers die with it (pdeathsig); no one is left to tell their status.
            worker.note_exit(None)
        self._workers.clear()

    async def stop(self) -> None:
        """Ends the zygote and all its workers."""
        if self.alive:
            self._on_death()
        try:
            await asyncio.wait_for(self._process.wait(), 5.0)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def _read_announcement(process: asyncio.subprocess.Process) -> JsonObject:
    if process.stdout is None:
        raise ValueError("the zygote was started without a pipe")
    announcement: JsonObject = json.loads(await process.stdout.readline())
    return announcement


class Pool:
    """The zygotes, each started when it is first needed and replaced when it dies."""

    def __init__(self, *, allow_weak_sandbox: bool = False) -> None:
        self._allow_weak_sandbox = allow_weak_sandbox
        self._zygotes: dict[str, asyncio.Future[Zygote]] = {}
        self._restarting: set[asyncio.Future[None]] = set()
        self._closing = False

    async def zygote(self, name: str) -> Zygote:
        """The ready zygote of that name, started if there is none or it died. Raises InternalError, ShuttingDown."""
        if self._closing:
            raise ShuttingDown("The server is shutting down. Send the request again in a moment.", retry_after_s=5)
        current = self._zygotes.get(name)
        if current is None or _state(current) == "failed":
            if current is not None:
                log.warning("the %s zygote died, starting another", name)
            current = asyncio.ensure_future(Zygote.start(name, allow_weak_sandbox=self._allow_weak_sandbox))
            self._zygotes[name] = current
        try:
            zygote = await asyncio.shield(current)
        except asyncio.CancelledError:
            if not current.cancelled():
                raise
            return await self.zygote(name)  # which says so
        if not zygote.watched:
            zygote.watched = True
            zygote.died.add_done_callback(lambda _: self._replace(name))
        return zygote

    def _replace(self, name: str) -> None:
        """Starts another zygote at once: the next request should not have to wait for it."""
        if not self._closing:
            task = asyncio.ensure_future(self._restart(name))
            self._restarting.add(task)
            task.add_done_callback(self._restarting.discard)

    async def _restart(self, name: str) -> None:
        with contextlib.suppress(InternalError, ShuttingDown):
            await self.zygote(name)

    async def fork(
        self, role: str, confinement: Confinement, limits: FrameLimits, descriptors: Sequence[int] = ()
    ) -> Worker:
        """A new worker of `role`, with copies of `descriptors`. Raises InternalError, ShuttingDown."""
        return await (await self.zygote(ZYGOTE_OF[role])).fork(role, confinement, limits, descriptors)

    @contextlib.asynccontextmanager
    async def lend(
        self, role: str, confinement: Confinement, limits: FrameLimits, deadline: Deadline, doing: str
    ) -> AsyncIterator[Worker]:
        """A worker of `role` for the body, and ended with it. Raises InternalError, ShuttingDown.

        In the body, a worker that is lost raises the Problem of its fate while `doing`, and a body that takes longer
        than the deadline raises the deadline's.
        """
        worker = await self.fork(role, confinement, limits)
        try:
            async with asyncio.timeout(deadline.seconds):
                yield worker
        except TimeoutError as error:
            raise deadline.problem() from error
        except WorkerGone as error:
            raise await worker.fate(doing) from error
        finally:
            await worker.end()

    def announcement(self, name: str) -> JsonObject | None:
        """What that zygote announced, if it is ready now."""
        current = self._zygotes.get(name)
        return current.result().announcement if current is not None and _state(current) == "ready" else None

    def states(self) -> dict[str, str]:
        """Of each zygote that was asked for: `starting`, `ready` or `failed`."""
        return {name: _state(current) for name, current in self._zygotes.items()}

    async def close(self) -> None:
        """Ends all zygotes and workers."""
        self._closing = True
        for current in self._zygotes.values():
            # One that has not started yet need not: its imports take seconds.
            current.cancel()
            with contextlib.suppress(InternalError, asyncio.CancelledError):
                await (await current).stop()
        self._zygotes.clear()


def zygote_environment() -> dict[str, str]:
    """The environment of a process that is, or is tried as, a zygote."""
    passed = {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
    return passed | dict.fromkeys(_ONE_THREAD, "1")


def _state(current: asyncio.Future[Zygote]) -> str:
    if not current.done():
        return "starting"
    usable = not current.cancelled() and current.exception() is None and current.result().alive
    return "ready" if usable else "failed"
