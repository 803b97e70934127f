"""HTTP/1.1 from strangers: what a connection may send, how slowly, and how many there may be.

uvicorn's protocol on httptools (llhttp in its strict mode, which refuses a length and chunks together, two lengths,
folded headers, bare line ends and the like), with what it lacks: deadlines for heads, bodies and answers that are not
read; sizes of heads; a cap on connections, at which those that wait are closed before anybody is refused; one Host, no
trailers, no transfer coding but ``chunked``, no flood of tiny chunks or of requests behind each other.
"""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Any, ClassVar

import httptools
from uvicorn._types import ASGI3Application, ASGISendCallable
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.errors import MalformedRequest, Overloaded, Problem
from service.nouns import Limits, canonical_json
from service.request_log import HEADER, RequestLog, RequestNote, request_id
from service.serving_errors import HeadTooLarge, SlowRequest

MAX_HEADERS = 100
MAX_PIPELINED = 32
# What chunks may cost beyond their data: a size line each, for a client that sends 16 bytes at a time.
MAX_CHUNK_OVERHEAD = 64 << 10
# What is read of a body that nobody wants any more, before the connection is closed.
MAX_UNWANTED_BYTES = 1 << 20
# How often the pace of a body, or of a reader of answers, is looked at.
PACE_S = 10.0


class _Refused(Exception):
    """Raised inside of the parser's callbacks."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class GuardedProtocol(HttpToolsProtocol):
    """One connection. `bound_to` gives the class with the Limits of a server."""

    limits: ClassVar[Limits] = Limits()

    @classmethod
    def bound_to(cls, limits: Limits) -> type[GuardedProtocol]:
        """A class of its own for uvicorn's ``http=``."""
        return type(cls.__name__, (cls,), {"limits": limits})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = self.limits.idle_s
        self.waiting_since = self.loop.time()
        self._log: RequestLog | None = self.app_state.get(RequestLog.STATE)
        self._running: RequestResponseCycle | None = None
        self._refused = self._ends_after_body = False
        self._first = b""
        # Of the message that is being parsed.
        self._begun = False
        self._in_body = False
        self._messages = 0
        self._head_bytes = self._fed_bytes = self._body_bytes = self._wire_bytes = self._unwanted_bytes = 0
        self._codings = self._hosts = 0
        # At most one timer for what is received, one for what is sent.
        self._receiving: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._window_bytes = 0

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection, or refuses it when there are too many and none of them waits."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > self.limits.connections and not self._make_room():
            limit = self.limits.connections
            self._answer(
                Overloaded(
                    f"The server has {limit} connections, all of them busy. Send the request again later.",
                    limit=limit,
                    retry_after_s=1,
                )
            )
            return
        self._receiving = self.loop.call_later(self.limits.head_s, self._on_head_deadline)
        if self._first:
            first, self._first = self._first, b""
            self.data_received(first)

    def begin_with(self, data: bytes) -> None:
        """What was read of the connection before it came here; to be said before `connection_made`."""
        self._first = data

    def _make_room(self) -> bool:
        """Closes the other connection that has waited longest for a request; whether there was one."""
        waiting = [each for each in self.connections if isinstance(each, GuardedProtocol) and each.is_waiting]
        others = [each for each in waiting if each is not self]
        if not others:
            return False
        oldest = min(others, key=lambda each: each.waiting_since)
        oldest.transport.abort()
        # Its end is told in a later turn of the loop; it must not be chosen twice.
        self.connections.discard(oldest)
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether no request has arrived that has not been answered: idle, or with an unfinished head."""
        return not self._in_body and (self._running is None or self._running.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clocks."""
        self._stop_receiving_clock()
        self._unset_keepalive_if_required()
        if self._sending is not None:
            self._sending.cancel()
        super().connection_lost(exc)

    # What is received

    def data_received(self, data: bytes) -> None:
        """Feeds the parser, and answers with a Problem what it refuses."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._fed_bytes = len(data)
        messages = self._messages
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # HTTP/1.1 is all that is spoken here: the request is answered, and what follows it is not read.
            self._refused = True
            self.cycle.keep_alive = False
            return
        except httptools.HttpParserError as error:
            self._refuse(_reason(error))
            return
        if self._in_body:
            self._note_body(len(data))
        elif self._begun or messages == self._messages:
            self._note_head(len(data) if messages == self._messages else 0)
        elif self.is_waiting and self.timeout_keep_alive_task is None:
            # Answered before its body was whole: the clock of idle connections was stopped by the rest of the body.
            later = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
            self.timeout_keep_alive_task = later

    def _note_head(self, count: int) -> None:
        """An unfinished head, or line ends before one."""
        self._head_bytes += count
        if self._head_bytes > self.limits.head_bytes:
            self._refuse(self._too_large_a_head())
        elif self._receiving is None:
            self._receiving = self.loop.call_later(self.limits.head_s, self._on_head_deadline)

    def _note_body(self, count: int) -> None:
        self._window_bytes += count
        self._wire_bytes += count
        if self._codings and self._wire_bytes > 2 * self._body_bytes + MAX_CHUNK_OVERHEAD:
            self._refuse(MalformedRequest("The chunks of the body are more framing than data. Send larger chunks."))
        elif self._receiving is None:
            self._receiving = self.loop.call_later(PACE_S, self._on_body_pace)

    def on_message_begin(self) -> None:
        """A request line has begun."""
        self._begun = True
        self._codings = self._hosts = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, checked for what two readers could understand in two ways."""
        if self._in_body:
            raise _Refused(MalformedRequest("The body has trailers, which this server does not take."))
        super().on_header(name, value)
        lower = self.headers[-1][0]
        if lower == b"host":
            self._hosts += 1
        elif lower == b"transfer-encoding":
            self._codings += 1
            if value.strip().lower() != b"chunked":
                raise _Refused(MalformedRequest("The only `Transfer-Encoding` that this server takes is `chunked`."))

    def on_headers_complete(self) -> None:
        """The head is whole: it is checked once more, then the application is called."""
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise _Refused(MalformedRequest(f"The server speaks HTTP/1.1, not HTTP/{version}."))
        if version == "1.1" and self._hosts != 1:
            raise _Refused(MalformedRequest(f"The request has {self._hosts} `Host` headers; it needs one."))
        if version == "1.0" and (self._codings or self._hosts > 1):
            raise _Refused(MalformedRequest("A request of HTTP/1.0 has no `Transfer-Encoding` and one `Host` at most."))
        if len(self.headers) > MAX_HEADERS or (
            self._head_bytes + self._fed_bytes > self.limits.head_bytes
            and len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.limits.head_bytes
        ):
            raise _Refused(self._too_large_a_head())
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _Refused(MalformedRequest(f"More than {MAX_PIPELINED} requests were sent before one was answered."))
        self._stop_receiving_clock()
        self._begun = False
        self._in_body = True
        self._head_bytes = self._body_bytes = self._wire_bytes = self._unwanted_bytes = self._window_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body; one that nobody wants any more is read to its end only if that is near."""
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > MAX_UNWANTED_BYTES:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._in_body = False
        self._messages += 1
        self._head_bytes = 0
        self._stop_receiving_clock()
        super().on_message_complete()
        if self._ends_after_body:
            self._refused = True
            self.cycle.keep_alive = False
            if self.cycle.response_complete:
                self.transport.close()

    # The answer

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        if cycle.more_body:
            cycle.send = partial(self._send_of, cycle, cycle.send)  # type: ignore[method-assign]
        super()._start_asgi_task(cycle, app)

    async def _send_of(self, cycle: RequestResponseCycle, send: ASGISendCallable, message: Any) -> None:
        """What the application sends; an answer that comes before the body is whole says that the connection ends.

        The rest is read first, up to a bound: to close before would reset the connection, and the answer could be lost.
        """
        early = message["type"] == "http.response.start" and cycle.more_body
        if early and all(name.lower() != b"connection" for name, _ in message.get("headers", ())):
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)
        if early:
            cycle.keep_alive = self._ends_after_body = True

    def on_response_complete(self) -> None:
        """The answer is given to the transport; from now on the connection waits."""
        self.waiting_since = self.loop.time()
        super().on_response_complete()
        if self._sending is None and self.transport.get_write_buffer_size():
            self._watch_reader()

    def pause_writing(self) -> None:
        """The caller does not read as fast as the answer is written."""
        super().pause_writing()
        if self._sending is None:
            self._watch_reader()

    def _watch_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._sending = self.loop.call_later(PACE_S, self._on_reader_pace, left)

    def _on_reader_pace(self, before: int) -> None:
        self._sending = None
        left = self.transport.get_write_buffer_size()
        if left == 0:
            return
        if before - left < self.limits.slowest_bytes_per_s * PACE_S:
            self.transport.abort()
        else:
            self._watch_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for `idle_s`."""
        self.timeout_keep_alive_task = None
        if not self.transport.is_closing():
            self.transport.close()

    # Deadlines and refusals

    def _on_head_deadline(self) -> None:
        self._receiving = None
        if self.transport.is_closing():
            return
        if self._running is not None and not self._running.response_complete:
            # The head of a next request comes slowly while an answer is on its way: the answer first.
            self._receiving = self.loop.call_later(self.limits.head_s, self._on_head_deadline)
        elif not self._head_bytes and not self._begun:
            self.transport.close()
        else:
            self._refuse(SlowRequest(f"The head of the request took more than {self.limits.head_s:g} s."))

    def _on_body_pace(self) -> None:
        self._receiving = None
        if self.transport.is_closing():
            return
        slowest = self.limits.slowest_bytes_per_s
        # What is slow by itself is not the caller's fault while the server has stopped reading.
        if self._window_bytes < slowest * PACE_S and not self.flow.read_paused:
            self._refuse(SlowRequest(f"The body came at less than {slowest} bytes a second."))
            return
        self._window_bytes = 0
        self._receiving = self.loop.call_later(PACE_S, self._on_body_pace)

    def _stop_receiving_clock(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _too_large_a_head(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"The head of the request has more than {self.limits.head_bytes} bytes or {MAX_HEADERS} headers.",
            limit_bytes=self.limits.head_bytes,
        )

    def _refuse(self, problem: Problem) -> None:
        """Ends the connection, with an answer where the caller cannot take it for that of another request."""
        self._refused = True
        self._stop_receiving_clock()
        running = self._running
        if self._ends_after_body and (running is None or running.response_complete):
            # It has its answer; another one would be taken for that of the next request.
            self.transport.close()
        elif running is None or running.response_complete:
            self._answer(problem)
        elif self._in_body and running is self.cycle:
            # It waits for a body that will never be whole.
            started = running.response_started
            running.disconnected = True
            running.message_event.set()
            if started:
                self.transport.close()
            else:
                self._answer(problem)
        else:
            # The request before is answered first, and nothing after it.
            self.pipeline.clear()
            running.keep_alive = False

    def _answer(self, problem: Problem) -> None:
        """Writes a Problem as the application would, and closes."""
        self._refused = True
        note = self._note_of_refused()
        members = {**problem.to_json(), "instance": f"urn:uuid:{uuid.uuid4()}", "request_id": note.id}
        content = canonical_json(members)
        retry = problem.extensions.get("retry_after_s")
        head = [
            STATUS_LINE[problem.status],
            b"content-type: application/problem+json\r\n",
            b"content-length: %d\r\n" % len(content),
            b"" if retry is None else b"retry-after: %d\r\n" % retry,
            f"{HEADER.lower()}: {note.id}\r\n".encode(),
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join([*head, content]))
        self.transport.close()
        self._note(note, problem.status)

    def _note(self, note: RequestNote, status: int) -> None:
        if self._log is not None:
            self._log.note(note, status)

    def _note_of_refused(self) -> RequestNote:
        """Of a request that the application has begun with; of one that it does not see, what was read of it."""
        known = self.scope.get(RequestNote.SCOPE) if self._in_body else None
        if isinstance(known, RequestNote):
            return known
        begun = self._begun or self._in_body
        given = (
            next((value for name, value in self.headers if name == HEADER.lower().encode()), None) if begun else None
        )
        method = self.parser.get_method().decode("ascii") if self._in_body else None
        return RequestNote(request_id(None if given is None else given.decode("latin-1")), method)


def _reason(error: httptools.HttpParserError) -> Problem:
    """The Problem that a callback raised, or what the parser says."""
    inner = error.__context__
    if isinstance(inner, _Refused):
        return inner.problem
    text = str(error).strip().rstrip(".")
    return MalformedRequest(f"The request is not HTTP/1.1: {text}." if text else "The request is not HTTP/1.1.")
