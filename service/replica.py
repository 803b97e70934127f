"""One infer worker with an Artifact loaded, and the ring through which it is asked: calls in, answers out in order."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from service.errors import (
    CheckFailed,
    DeadlineExceeded,
    ExecutionFailed,
    IndexOutOfRange,
    InternalError,
    JsonObject,
    Problem,
    problem_from_json,
)
from service.nouns import Limits
from service.pool import Worker, WorkerGone, checked
from service.ring import (
    ANSWERED,
    EXPIRED,
    FAILED,
    ITEM_BYTES,
    MAX_SLOTS,
    Answer,
    Layout,
    RawTensor,
    Ring,
    RingError,
    signals,
)
from service.serving_errors import RequestTimedOut, WorkerLost
from service.wire import Frame

log = logging.getLogger(__name__)

# What a worker may say of a model and its inputs. Anything else it says is taken for nonsense.
_OF_THE_MODEL = (CheckFailed, IndexOutOfRange, ExecutionFailed)


@dataclass(slots=True)
class Outcome:
    """The outputs of one inference, the ns of its run and of its waiting for that, and the requests in that run.

    What a worker says of its runs is held to what can be.
    """

    outputs: list[RawTensor]
    run_ns: int
    queue_ns: int
    batch: int

    @property
    def output_bytes(self) -> int:
        """The bytes of all outputs."""
        total = 0
        for tensor in self.outputs:
            total += len(tensor.data)
        return total


@dataclass(slots=True, eq=False)
class Call:
    """One inference that was asked for. `settle` is called once, in the event loop, unless it is abandoned before."""

    inputs: list[RawTensor]
    settle: Callable[[Outcome | Problem], None]
    # Of the monotonic clock; 0 for none.
    deadline_ns: int = 0
    begun_ns: int = field(default_factory=time.monotonic_ns)
    request_id: str = ""
    settled: bool = False
    timer: asyncio.TimerHandle | None = None

    def finish(self, outcome: Outcome | Problem) -> None:
        """Tells the caller, who may have gone."""
        if not self.settled:
            self.abandon()
            self.settle(outcome)

    def abandon(self) -> None:
        """Nobody waits for it any more: its answer will be dropped."""
        self.settled = True
        if self.timer is not None:
            self.timer.cancel()


@dataclass(eq=False)
class Replica:
    """A loaded Artifact in a worker of its own. Methods belong to the event loop's thread."""

    worker: Worker
    ring: Ring
    limits: Limits
    # Called when calls were answered, and when the worker is no more.
    on_answers: Callable[[], None]
    on_end: Callable[[], None]
    # What the worker took to load the Artifact.
    memory_bytes: int = 0
    answered: int = 0
    ended: bool = False
    _asked: int = 0
    # Whether the worker was rung for in this turn of the loop, and for how many requests it was not.
    _is_rung: bool = False
    _unrung: int = 0
    _in_ring: deque[tuple[int, Call]] = field(default_factory=deque)
    _over_socket: int = 0
    _socket: asyncio.Lock = field(default_factory=asyncio.Lock)
    _watch: asyncio.TimerHandle | None = None
    _progress_s: float = 0.0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = list(range(self.ring.layout.slots))
        self._loop.add_reader(self.ring.answers, self._on_signal)
        self.worker.exited.add_done_callback(self._on_exit)

    @property
    def busy(self) -> int:
        """How many calls it has and has not answered."""
        return len(self._in_ring) + self._over_socket

    @property
    def has_room(self) -> bool:
        """Whether it can take another call now. One without slots takes all, over its socket."""
        return not self.ended and (bool(self._free) or not self.ring.layout.slots)

    def take(self, call: Call) -> None:
        """Asks the worker: by the ring where the inputs have room in a slot, else over its socket. Needs `has_room`."""
        if not self._free or not self.ring.fits(call.inputs):
            self._over_socket += 1
            self._spawn(self._exchange(call))
            return
        slot = self._free.pop()
        self._in_ring.append((slot, call))
        self.ring.ask(self._asked, slot, call.inputs, call.deadline_ns)
        self._asked += 1
        # The first of a turn of the loop wakes the worker at once, the others of that turn together.
        if self._is_rung:
            self._unrung += 1
        else:
            self._is_rung = True
            self.ring.ring_for(1)
            self._loop.call_soon(self._ring_for_rest)
        if len(self._in_ring) == 1:
            self._progress_s = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(self.limits.infer_s, self._look)

    def _ring_for_rest(self) -> None:
        self._is_rung = False
        if self._unrung and not self.ended:
            self.ring.ring_for(self._unrung)
        self._unrung = 0

    def _on_signal(self) -> None:
        count = 0 if self.ended else signals(self.ring.answers)
        if count > len(self._in_ring):
            self._give_up(InternalError("The infer worker answered what it was not asked."))
            return
        self._progress_s = self._loop.time()
        for _ in range(count):
            slot, call = self._in_ring.popleft()
            try:
                answer = self.ring.told(slot)
            except RingError as error:
                problem = InternalError(f"The infer worker sent a message that makes no sense ({str(error)[:200]}).")
                call.finish(problem)
                self._give_up(problem, call)
                return
            if answer.status not in (ANSWERED, FAILED, EXPIRED):
                # The outputs have no room in a slot, but in a frame.
                self._over_socket += 1
                self._spawn(self._exchange(call))
            else:
                call.finish(outcome_of(answer, time.monotonic_ns() - call.begun_ns))
            self._free.append(slot)
        self.answered += count
        self.on_answers()

    def _look(self) -> None:
        """The deadline of the request that the worker has in its hands."""
        self._watch = None
        if not self._in_ring or self.ended:
            return
        left = self._progress_s + self.limits.infer_s - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._look)
            return
        _, call = self._in_ring.popleft()
        call.finish(too_slow("The inference", self.limits.infer_s))
        self._give_up(_hung(), call)

    async def _exchange(self, call: Call) -> None:
        """One call over the socket: for tensors that have no room in a slot."""
        try:
            async with self._socket:
                if not call.settled:
                    call.finish(await self._ask_over_socket(call))
        finally:
            self._over_socket -= 1
            self.answered += 1
            self.on_answers()

    async def _ask_over_socket(self, call: Call) -> Outcome | Problem:
        if self.ended:
            return WorkerLost("The worker of this model has ended. Send the request again.", retry_after_s=1)
        specs = [{"dtype": tensor.dtype, "shape": list(tensor.shape)} for tensor in call.inputs]
        begun = time.monotonic_ns()
        try:
            # What is in the ring comes first, each of it with a deadline of its own.
            async with asyncio.timeout(self.limits.infer_s * (1 + len(self._in_ring))):
                await self.worker.send(Frame({"op": "run", "inputs": specs}, tuple(each.data for each in call.inputs)))
                frame = await self.worker.receive()
        except WorkerGone:
            return await self._fate()
        except TimeoutError:
            self._give_up(_hung(), call)
            return too_slow("The inference", self.limits.infer_s)
        try:
            outputs = _tensors(checked(frame, "result"), self.ring.layout)
        except InternalError as problem:
            self._give_up(problem, call)
            return problem
        except Problem as problem:
            return _of_the_model(problem)
        return Outcome(outputs, time.monotonic_ns() - begun, begun - call.begun_ns, 1)

    def _on_exit(self, _: asyncio.Future[int | None]) -> None:
        if not self.ended:
            self._spawn(self._tell_fate())

    async def _tell_fate(self) -> None:
        # An answer may have been written before the worker died.
        self._on_signal()
        self._give_up(await self._fate())

    async def _fate(self) -> Problem:
        return lost(await self.worker.fate("during an inference"))

    def _give_up(self, problem: Problem, at: Call | None = None, *, is_fault: bool = True) -> None:
        """Ends the worker and tells all who wait for it; `at` is the call that showed a fault, told already."""
        if self.ended:
            return
        if is_fault:
            calls = [*([] if at is None else [at]), *(call for _, call in self._in_ring)]
            ids = ", ".join(call.request_id for call in calls) or "none"
            log.warning("infer worker %d is given up: %s Requests: %s", self.worker.pid, problem.detail, ids)
        self.ended = True
        self._loop.remove_reader(self.ring.answers)
        if self._watch is not None:
            self._watch.cancel()
        waiting, self._in_ring = self._in_ring, deque()
        for _, call in waiting:
            call.finish(problem)
        self._spawn(self._close())
        self.on_end()

    async def _close(self) -> None:
        await self.worker.end()
        self.ring.close()

    async def end(self) -> None:
        """Ends the worker; what it has not answered fails."""
        problem = WorkerLost("The model was unloaded. Send the request again.", retry_after_s=1)
        self._give_up(problem, is_fault=False)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def outcome_of(answer: Answer, elapsed_ns: int) -> Outcome | Problem:
    """What a checked answer of a worker means, so long after its request."""
    if answer.status == ANSWERED:
        run_ns = min(answer.run_ns, elapsed_ns)
        return Outcome(answer.outputs, run_ns, elapsed_ns - run_ns, max(1, min(answer.batch, MAX_SLOTS)))
    if answer.status == EXPIRED:
        return timed_out()
    try:
        members = json.loads(answer.problem)
        return _of_the_model(problem_from_json(members))
    except (ValueError, RecursionError, TypeError, AttributeError):
        return InternalError("The infer worker sent a Problem that makes no sense.")


def _of_the_model(problem: Problem) -> Problem:
    """A worker's Problem without what only the server may say, as headers and types of errors of its own."""
    known = next((kind for kind in _OF_THE_MODEL if type(problem) is kind), None)
    operator = problem.extensions.get("operator")
    detail = problem.detail[:2000]
    if known is None:
        return InternalError(f"The infer worker failed: {detail}")
    return known(detail, operator=operator[:200] if isinstance(operator, str) else None)


def lost(fate: Problem) -> Problem:
    """What the callers of a worker that died are told: the request may be sent again."""
    return WorkerLost(f"{fate.detail} Send the request again.", signal=fate.extensions.get("signal"), retry_after_s=1)


def _hung() -> WorkerLost:
    return WorkerLost("The worker of this model hung at another request. Send it again.", retry_after_s=1)


def timed_out() -> RequestTimedOut:
    """The Problem of a request whose own deadline is over."""
    return RequestTimedOut("The `timeout` of the request was over before it was answered.")


def too_slow(what: str, limit: float) -> DeadlineExceeded:
    """The Problem of work that was stopped at the server's limit."""
    return DeadlineExceeded(
        f"{what} was stopped after its limit of {math.floor(limit)} s. Send a smaller batch, or let the operator "
        "raise RELAXD_INFER_S.",
        limit_s=limit,
    )


def _tensors(frame: Frame, layout: Layout) -> list[RawTensor]:
    try:
        specs: list[JsonObject] = frame.body["outputs"]
        tensors = [
            RawTensor(str(spec["dtype"]), tuple(map(int, spec["shape"])), blob)
            for spec, blob in zip(specs, frame.blobs, strict=True)
        ]
        wanted = [(spec.dtype, len(spec.shape)) for spec in layout.outputs]
    except (KeyError, TypeError, ValueError) as error:
        raise _unintelligible(repr(error)) from error
    if [(tensor.dtype, len(tensor.shape)) for tensor in tensors] != wanted:
        raise _unintelligible("outputs that are not those of the Signature")
    for tensor in tensors:
        size = ITEM_BYTES[tensor.dtype]
        if min(tensor.shape, default=0) < 0 or math.prod(tensor.shape) * size != len(tensor.data):
            raise _unintelligible(f"{len(tensor.data)} bytes for {tensor.dtype} {tensor.shape}")
    return tensors


def _unintelligible(what: str) -> InternalError:
    return InternalError(f"The infer worker sent a message that makes no sense ({what[:200]}).")
