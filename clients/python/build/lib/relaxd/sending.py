"""One request, without doing the I/O: what to send, when to send it again, what an answer means.

A Flow is a generator that yields a Request and is sent the answer, or yields a Pause and is resumed after it; a
failure of the transport is thrown into it. The synchronous and the asynchronous client differ only in the loop
that runs a Flow, so nothing else exists twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias, TypeVar

import httpx

from relaxd.errors import AnswerTimeout, RelaxdError, ServerUnreachable, UnexpectedAnswer, problem_error

T = TypeVar("T")

ATTEMPTS = 4
BACKOFF_S = 0.25
# A server that asks for more patience than this is reported to the caller, who knows better whether to wait.
LONGEST_PAUSE_S = 30.0

UploadParts: TypeAlias = "dict[str, tuple[str | None, bytes | str | BinaryIO, str]]"


@dataclass(frozen=True)
class Request:
    """What to send. `wait_s` is how long the server was asked to hold the answer back, on top of the timeout."""

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    parts: UploadParts | None = None
    wait_s: float = 0.0


@dataclass(frozen=True)
class Pause:
    """Do nothing for that long."""

    seconds: float


Flow: TypeAlias = "Generator[Request | Pause, Any, T]"


def send(request: Request) -> Flow[httpx.Response]:
    """The successful answer to the request.

    Sent again only where that is safe: any request after a 503 with Retry-After, by which the server says that it
    has not begun; and a GET whose connection failed. Raises ProblemError, ServerUnreachable, AnswerTimeout,
    UnexpectedAnswer.
    """
    for attempt in itertools.count(1):
        try:
            answer: httpx.Response = yield request
        except httpx.RequestError as error:
            # After a timeout the caller has waited once already, and a slow server is not helped by a second request.
            again = request.method == "GET" and not isinstance(error, httpx.TimeoutException)
            if not again or attempt == ATTEMPTS:
                raise _transport_error(error) from error
            yield Pause(BACKOFF_S * 2 ** (attempt - 1))
            continue
        pause_s = _asked_pause_s(answer)
        if pause_s is None or attempt == ATTEMPTS:
            return _success(answer)
        yield Pause(pause_s)
    raise AssertionError("unreachable: the loop above only ends by return or raise")


def read_answer(answer: httpx.Response, read: Callable[[Any], T]) -> T:
    """`read` applied to the JSON of the answer. Raises UnexpectedAnswer when it is not what `read` expects."""
    try:
        return read(answer.json())
    # What reading a document of another shape raises: member missing, of another type, or without that method.
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unexpected(answer, f"{type(error).__name__}: {error}") from error


def _success(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    if answer.headers.get("content-type", "").partition(";")[0] != "application/problem+json":
        raise _unexpected(answer, "it is neither a success nor a problem document")
    raise read_answer(answer, problem_error)


def _asked_pause_s(answer: httpx.Response) -> float | None:
    """How long a 503 asks to wait; None for other answers, for too long, and for a date, which relaxd never sends."""
    value = answer.headers.get("retry-after", "")
    if answer.status_code != 503 or not value.isdecimal():
        return None
    return float(value) if float(value) <= LONGEST_PAUSE_S else None


def _transport_error(error: httpx.RequestError) -> RelaxdError:
    request = error.request
    where = f"{request.method} {request.url}"
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return AnswerTimeout(f"{where}: no answer in time ({reason}). Give the client a longer `timeout`.")
    origin = request.url.copy_with(path="/", query=None)
    return ServerUnreachable(
        f"{where}: {reason}. Is relaxd running at {origin}? Start it with `python -m service serve`, "
        "or give the client the right `base_url`."
    )


def _unexpected(answer: httpx.Response, reason: str) -> UnexpectedAnswer:
    request = answer.request
    return UnexpectedAnswer(
        f"{request.method} {request.url} answered {answer.status_code} in a form that relaxd does not use ({reason}). "
        f"Is it a relaxd server, of a version that fits this client? The body starts: {answer.text[:200]!r}"
    )
