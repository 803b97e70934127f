"""The heads of inferences that the fast lane takes: read strictly, by their bytes. All else is for the HTTP parser.

What is read here is a small part of HTTP/1.1 on which no two parsers differ: one line after the other, each name once
where it matters, no body but one of a declared length. What is unusual, or wrong, is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEAD_BYTES = 8 << 10
MAX_HEADERS = 64

_REQUEST = re.compile(
    rb"POST /(?:infer|v2/models/([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?:/versions/([0-9]{1,9}))?/infer) HTTP/1\.1"
)
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ ]?([!-~](?:[ -~]*[!-~])?)?")
# Of these the HTTP parser and the route know what to do.
_UNUSUAL = frozenset(
    (
        *(b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings"),
        *(b"origin", b"sec-fetch-site"),
    )
)
_KNOWN = frozenset(
    (
        b"host",
        b"content-length",
        b"connection",
        b"accept-encoding",
        b"authorization",
        b"inference-header-content-length",
        b"x-request-id",
    )
)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Of an inference: the model and version of its path (None for POST /infer), and the headers that matter."""

    model: str | None
    version: str | None
    content_length: int
    header_length: str | None
    accept_encoding: str
    authorization: str | None
    host: str
    request_id: str | None


def read_head(head: bytes) -> RequestHead | None:
    """The head of a request, without the empty line that ends it."""
    first, *lines = head.split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    found = None if request is None else _headers(lines)
    if request is None or found is None or b"host" not in found:
        return None
    length = found.get(b"content-length", "")
    if not re.fullmatch("[0-9]{1,12}", length) or found.get(b"connection", "keep-alive").lower() != "keep-alive":
        return None
    model, version = (None if part is None else part.decode("ascii") for part in request.groups())
    return RequestHead(
        model,
        version,
        int(length),
        found.get(b"inference-header-content-length"),
        found.get(b"accept-encoding", ""),
        found.get(b"authorization"),
        found[b"host"],
        found.get(b"x-request-id"),
    )


def _headers(lines: list[bytes]) -> dict[bytes, str] | None:
    found: dict[bytes, str] = {}
    if len(lines) > MAX_HEADERS:
        return None
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            return None
        name = header[1].lower()
        if name in _UNUSUAL or name in found:
            return None
        if name in _KNOWN:
            found[name] = (header[2] or b"").decode("ascii")
    return found
