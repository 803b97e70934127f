"""Heads that the fast lane reads by itself: never otherwise than the HTTP parser does, and nothing unusual."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.request_head import read_head

USUAL = [b"Host: a", b"Content-Length: 12"]


def head(*lines: bytes, target: bytes = b"/infer", version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join([b"POST " + target + b" " + version, *lines])


class Parsed:
    """What httptools makes of a head: None for `target` where it refuses it."""

    def __init__(self, raw: bytes) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(raw + b"\r\n\r\n")
            self.keeps_alive = parser.should_keep_alive()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True


NAMES = st.sampled_from(
    [b"Host", b"Content-Length", b"content-length", b"Connection", b"Transfer-Encoding", b"Expect", b"Upgrade", b"X-A",
     b"Accept-Encoding", b"Authorization", b"Inference-Header-Content-Length", b"Content-Encoding", b"Bad Name", b"", b"X\0", b" Host"]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(
        [
            b"12",
            b"0",
            b"+12",
            b"1 2",
            b"0x1",
            b"keep-alive",
            b"close",
            b"chunked",
            b"gzip",
            b"",
            b" 12",
            b"12 ",
            b"a\tb",
            b"\xff",
            b"\x7f",
            b"1\n2",
            b"1\r2",
        ]
    ),
    st.binary(max_size=6),
)
LINES = st.lists(
    st.builds(
        lambda name, colon, value: name + colon + value, NAMES, st.sampled_from([b": ", b":", b" : ", b""]), VALUES
    ),
    max_size=6,
)
TARGETS = st.sampled_from(
    [
        b"/infer",
        b"/v2/models/m/infer",
        b"/v2/models/m/versions/1/infer",
        b"/infer?x=1",
        b"/v2/models/%6d/infer",
        b"/v2/models/../infer",
        b"/infer ",
        b"//infer",
        b"http://a/infer",
    ]
)


@given(TARGETS, LINES, st.booleans(), st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.1 "]))
@example(b"/infer", [], True, b"HTTP/1.1")
def test_what_is_read_here_is_what_the_parser_reads(target, lines, with_usual, version):
    raw = head(*(USUAL if with_usual else []), *lines, target=target, version=version)
    mine = read_head(raw)
    if mine is None:
        return
    theirs = Parsed(raw)
    assert theirs.complete
    assert theirs.keeps_alive
    assert theirs.target == target
    values = dict(theirs.headers)
    assert len([name for name, _ in theirs.headers if name == b"content-length"]) == 1
    assert int(values[b"content-length"]) == mine.content_length
    assert b"transfer-encoding" not in values
    assert values.get(b"accept-encoding", b"").decode() == mine.accept_encoding
    for name, value in (
        (b"authorization", mine.authorization),
        (b"inference-header-content-length", mine.header_length),
    ):
        assert (values[name].decode() if name in values else None) == value


def test_the_usual_ones_are_read():
    read = read_head(head(*USUAL, b"Accept: */*", b"accept-encoding: gzip", b"Inference-Header-Content-Length:5"))
    assert (read.model, read.version, read.content_length, read.header_length, read.accept_encoding) == (
        None,
        None,
        12,
        "5",
        "gzip",
    )
    read = read_head(head(*USUAL, b"Connection: Keep-Alive", target=b"/v2/models/a.b-c_1/versions/2/infer"))
    assert (read.model, read.version) == ("a.b-c_1", "2")


@pytest.mark.parametrize(
    "lines",
    [
        [b"Host: a"],
        [b"Content-Length: 1"],
        [*USUAL, b"Content-Length: 12"],
        [*USUAL, b"content-length: 13"],
        [*USUAL, b"Transfer-Encoding: chunked"],
        [*USUAL, b"Transfer-Encoding : chunked"],
        [*USUAL, b"Expect: 100-continue"],
        [*USUAL, b"Upgrade: websocket"],
        [*USUAL, b"Connection: close"],
        [*USUAL, b"Connection: keep-alive, upgrade"],
        [*USUAL, b"Content-Encoding: gzip"],
        [*USUAL, b"X: a", b" folded"],
        [*USUAL, b"X: a\nTransfer-Encoding: chunked"],
        [*USUAL, b"Host: b"],
        [*USUAL, b"Authorization: Bearer a", b"Authorization: Bearer b"],
        [b"Host: a", b"Content-Length: -1"],
        [b"Host: a", b"Content-Length: \xd9\xa1"],
        [b"Host: a", b"Content-Length: 1,1"],
        [b"Host: a", b"Content-Length: 99999999999999999999"],
    ],
)
def test_what_is_unusual_is_left_to_the_parser(lines):
    assert read_head(head(*lines)) is None
