"""The fast lane: inferences answered inside uvicorn's HTTP protocol, without the way through the framework.

It takes a request that stands at the start of a connection's input, whose head came in one piece and is usual
(`request_head`), and answers it by the same core as the route (`api.inference`). Whatever else comes goes to the HTTP
parser and the route as if this class were not there; so does a body that does not come, or that is not decided quickly.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from service.api.door import Door, Running, Usual
from service.api.inference import THREAD_BYTES
from service.api.oip_body import Answer, lines_of
from service.errors import InternalError, Problem
from service.http_protocol import GuardedProtocol
from service.replica import Outcome
from service.request_head import MAX_HEAD_BYTES
from service.request_log import CLIENT_GONE, RequestNote

UNFORESEEN = InternalError("The server met an error that was not foreseen.")
# For how long a request may be incomplete before the HTTP parser, and its deadlines, take it over.
PATIENCE_S = 1.0
# How much earlier than it says an idle connection may be closed.
IDLE_PRECISION_S = 0.01


class FastLane(GuardedProtocol):
    """One connection. The door is part of the lifespan's state; without one everything goes to the route."""

    # Headers as uvicorn has them, and what is made of them.
    _common: ClassVar[tuple[object, bytes]] = (None, b"")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._door: Door | None = self.app_state.get(Door.STATE)
        # A request whose body has not come to its end, from its first byte on.
        self._incomplete: bytearray | None = None
        self._head: Usual | None = None
        # The head that was taken last: the next request often has the same.
        self._last: Usual | None = None
        self._patience: asyncio.TimerHandle | None = None
        # A request that is being answered, and what came after it.
        self._answering = False
        self._taken: Running | None = None
        self._later = bytearray()
        self._is_last = False

    @property
    def is_waiting(self) -> bool:
        """As the guard has it: not while a request is taken or on its way."""
        return not self._answering and self._incomplete is None and super().is_waiting

    def data_received(self, data: bytes) -> None:
        """What the transport has read."""
        if self._answering:
            self._later += data
            if len(self._later) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
        elif self._incomplete is not None and self._head is not None:
            self._incomplete += data
            self._take_if_whole(self._head, self._incomplete)
        elif self._is_between_requests() and (head := self._read_head(data)) is not None:
            self._take_if_whole(head, data)
        else:
            self._to_parser(data)

    def _to_parser(self, data: bytes) -> None:
        """Leaves what is not for this class to the parser and the route."""
        super().data_received(data)

    def _is_between_requests(self) -> bool:
        """Whether the next byte is the first of a request, and all before it are answered."""
        is_at_start = not self._refused and not self._begun and not self._head_bytes
        return is_at_start and super().is_waiting and not self.pipeline and not self.flow.write_paused

    def _read_head(self, data: bytes) -> Usual | None:
        if self._last is not None and data.startswith(self._last.begins):
            return self._last
        if self._door is None or not data.startswith(b"POST /"):
            return None
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        found = None if end < 0 else self._door.read_head(data[:end])
        self._last = found or self._last
        return found

    def _take_if_whole(self, head: Usual, data: bytes | bytearray) -> None:
        missing = head.total_bytes - len(data)
        if missing < 0:
            self._leave_to_parser(data)
        elif missing == 0:
            if self._incomplete is not None:
                self._forget_incomplete()
            self._take(head, data)
        elif self._incomplete is None:
            self._stop_clocks()
            self._incomplete, self._head = bytearray(data), head
            self._patience = self.loop.call_later(PATIENCE_S, self._lose_patience)

    def _stop_clocks(self) -> None:
        # The clock of idle connections goes on: it looks whether it was meant when it rings.
        self._stop_receiving_clock()

    def _lose_patience(self) -> None:
        if self._incomplete is not None:
            self._leave_to_parser(self._incomplete)

    def _forget_incomplete(self) -> None:
        self._incomplete = self._head = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _leave_to_parser(self, data: bytes | bytearray) -> None:
        self._forget_incomplete()
        if not self.transport.is_closing():
            self._to_parser(bytes(data))

    def _take(self, head: Usual, data: bytes | bytearray) -> None:
        self._stop_clocks()
        self._answering = True
        body = memoryview(data)[len(head.begins) :]
        try:
            self._taken = self._door.submit(head, body, self._settle) if self._door else None
        except Exception:  # noqa: BLE001  whatever it is, the route meets it again and says so as it always does
            self._taken = None
        if self._taken is None:
            self._answering = False
            self._leave_to_parser(data)
        elif self._taken.problem is not None:
            self._settle(self._taken.problem)

    def _settle(self, outcome: Outcome | Problem) -> None:
        taken = self._taken
        if taken is None:
            return
        inference = taken.inference
        if isinstance(outcome, Problem):
            self._send_problem(taken, outcome)
        elif outcome.output_bytes > THREAD_BYTES:
            writing = self.loop.run_in_executor(None, inference.write, outcome)
            writing.add_done_callback(lambda done: self._send_written(taken, outcome, done))
        else:
            self._send_answer(taken, outcome, inference.write(outcome))

    def _send_written(self, taken: Running, outcome: Outcome, done: asyncio.Future[Answer]) -> None:
        error = done.exception()
        if self._taken is None:
            return
        if error is None:
            self._send_answer(taken, outcome, done.result())
        else:
            self._send_problem(taken, error if isinstance(error, Problem) else UNFORESEEN)

    def _send_answer(self, taken: Running, outcome: Outcome, answer: Answer) -> None:
        taken.inference.succeeded(outcome)
        lines = answer.lines or lines_of(answer.headers)
        self._send(taken.note, 200, b"%scontent-length: %d\r\n" % (lines, len(answer.body)), answer.body)

    def _send_problem(self, taken: Running, problem: Problem) -> None:
        taken.inference.failed()
        if self._door is not None:
            response = self._door.refusal(taken, problem)
            says_close = response.headers.get("connection") == "close"
            lines = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
            self._send(taken.note, response.status_code, lines, bytes(response.body), says_close=says_close)

    def _send(self, note: RequestNote, status: int, lines: bytes, body: bytes, *, says_close: bool = False) -> None:
        self._answering, self._taken = False, None
        self.waiting_since = self.loop.time()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._note(note, CLIENT_GONE)
            return
        end = b"connection: close\r\n\r\n" if self._is_last and not says_close else b"\r\n"
        name = b"x-request-id: %s\r\n" % note.id.encode()
        self.transport.write(b"".join((STATUS_LINE[status], self._common_lines(), name, lines, end, body)))
        self._note(note, status)
        if self._is_last or says_close:
            self.transport.close()
            return
        if self._sending is None and self.transport.get_write_buffer_size():
            self._watch_reader()
        if self.timeout_keep_alive_task is None:
            seconds = self.timeout_keep_alive
            self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)
        self.flow.resume_reading()
        if self._later:
            later, self._later = bytes(self._later), bytearray()
            # While the rest waits for its turn, nothing may overtake it.
            self._answering = True
            self.loop.call_soon(self._go_on, later)

    def timeout_keep_alive_handler(self) -> None:
        """The clock of idle connections has rung, since when there may have been requests."""
        self.timeout_keep_alive_task = None
        left = self.waiting_since + self.timeout_keep_alive - self.loop.time()
        if not self.is_waiting:
            # With its answer a new clock is set.
            return
        if left > IDLE_PRECISION_S:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _common_lines(self) -> bytes:
        """The headers that all answers have: uvicorn makes its own of these anew each second."""
        defaults = self.server_state.default_headers
        if FastLane._common[0] is not defaults:
            lines = b"".join(b"%s: %s\r\n" % header for header in (*defaults, *Door.HEADERS))
            FastLane._common = (defaults, lines)
        return FastLane._common[1]

    def _go_on(self, data: bytes) -> None:
        self._answering = False
        if not self.transport.is_closing():
            more, self._later = bytes(self._later), bytearray()
            self.data_received(data + more)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone: nobody waits for its answer."""
        self._forget_incomplete()
        if self._taken is not None and self._taken.call is not None:
            self._taken.call.abandon()
            self._taken.inference.failed()
            self._note(self._taken.note, CLIENT_GONE)
        self._taken = None
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: what is being answered is answered first."""
        if self._answering:
            self._is_last = True
            return
        if self._incomplete is not None:
            self._leave_to_parser(self._incomplete)
        super().shutdown()
