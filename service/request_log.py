"""The id of each request, by which answers, Problems and the log belong together, and a line of JSON for each.

A line is made and written without Python's logging, and lines are written together: what is noted of a request costs it
some microseconds, and nothing where it is not wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import orjson

HEADER = "X-Request-Id"
# Which requests have a line: all, those whose answer is an error, none.
WANTED = ("all", "failed", "off")
# What nginx notes for a caller that has gone before its answer was there.
CLIENT_GONE = 499
# Lines are written after so long at the latest, in pieces that a pipe takes as one (PIPE_BUF).
FLUSH_S = 0.1
PIECE_BYTES = 4096

_VALID = re.compile(r"[A-Za-z0-9._:=+/-]{1,128}")
_PREFIX = secrets.token_hex(8)
_numbers = itertools.count(1)


def request_id(given: str | None) -> str:
    """The id of a request: the one that the caller has given, if it is one, else a new one.

    An id is up to 128 letters, digits and ``. _ : = + / -``.
    """
    if given is not None and _VALID.fullmatch(given):
        return given
    return f"{_PREFIX}-{next(_numbers):08x}"


@dataclass(slots=True)
class RequestNote:
    """What is known of a request while it is answered. `path` is that of the route, with names for what varies.

    In an ASGI scope it stands under `SCOPE`.
    """

    SCOPE: ClassVar[str] = "relaxd.request"
    id: str
    method: str | None = None
    path: str | None = None
    model: str | None = None
    caller: str | None = None
    # Its line is written: how it ended first is what counts.
    noted: bool = False
    begun_ns: int = field(default_factory=time.perf_counter_ns)


# The request that is being answered; None outside of one.
current: contextvars.ContextVar[RequestNote | None] = contextvars.ContextVar("request", default=None)


def current_id() -> str:
    """The id of the request that is being answered, or nothing."""
    note = current.get()
    return "" if note is None else note.id


def _write(piece: bytes) -> None:
    # A log that cannot be written must not end the server.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.buffer.write(piece)
        sys.stderr.flush()


class RequestLog:
    """Writes the lines of those requests that are `wanted`. For the event loop's thread."""

    STATE = "request_log"

    def __init__(self, wanted: str, write: Callable[[bytes], None] = _write) -> None:
        self._least_status = {"all": 0, "failed": 400, "off": 1000}[wanted]
        self._write = write
        self._lines: list[bytes] = []
        self._second, self._shown = 0, ""

    def note(self, note: RequestNote, status: int) -> None:
        """Notes how a request ended, if that is wanted: to be called when its answer was handed to the transport."""
        if status < self._least_status or note.noted:
            return
        note.noted = True
        line = {
            "time": self._now(),
            "logger": "relaxd.request",
            "request_id": note.id,
            "method": note.method,
            "path": note.path,
            "model": note.model,
            "status": status,
            "duration_ms": (time.perf_counter_ns() - note.begun_ns) // 1000 / 1000,
            "caller": note.caller,
        }
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        self._lines.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def _now(self) -> str:
        now = time.time()
        if int(now) != self._second:
            self._second = int(now)
            self._shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        return f"{self._shown}.{int(now % 1 * 1000):03}Z"

    def flush(self) -> None:
        """Writes what was noted."""
        lines, self._lines = self._lines, []
        piece: list[bytes] = []
        size = 0
        for line in lines:
            if size + len(line) > PIECE_BYTES and piece:
                self._write(b"".join(piece))
                piece, size = [], 0
            piece.append(line)
            size += len(line)
        if piece:
            self._write(b"".join(piece))


class JsonLines(logging.Formatter):
    """A record of Python's logging as one line of JSON, with the id of the request that it was made in."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03}Z",
            "logger": record.name,
            "level": record.levelname,
            "message": record.getMessage(),
        }
        if identifier := current_id():
            line["request_id"] = identifier
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging() -> None:
    """Sends Python's logging to standard error: lines of JSON, on a terminal text."""
    handler = logging.StreamHandler()
    if sys.stderr.isatty():
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    else:
        handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
