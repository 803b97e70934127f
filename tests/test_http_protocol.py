"""What strangers do to a connection, over raw sockets: the real server, and one with short deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import uvicorn

from service import http_protocol
from service.http_protocol import MAX_HEADERS, MAX_PIPELINED, GuardedProtocol
from service.nouns import Limits
from tests.conftest import Server, wait_until

Ask = Callable[..., tuple[int, bytes]]


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, 10)


def read_all(sock: socket.socket) -> bytes:
    """All that the server sends until it closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            received += data
    return received


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.fixture
def address(server: Server) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def post(headers: bytes, body: bytes = b"", *, path: bytes = b"/infer", version: bytes = b"1.1") -> bytes:
    return b"POST " + path + b" HTTP/" + version + b"\r\nHost: 127.0.0.1\r\n" + headers + b"\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked\r\n"
# What two servers in a row could understand in two ways, or what is no HTTP at all. Each with another request behind it.
AMBIGUOUS = {
    "length and chunks": post(b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n"),
    "chunks and length": post(CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n"),
    "two equal lengths": post(b"Content-Length: 2\r\nContent-Length: 2\r\n", b"{}"),
    "two lengths": post(b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{}"),
    "a list of lengths": post(b"Content-Length: 2, 2\r\n", b"{}"),
    "a signed length": post(b"Content-Length: +2\r\n", b"{}"),
    "a negative length": post(b"Content-Length: -2\r\n", b"{}"),
    "a hexadecimal length": post(b"Content-Length: 0x2\r\n", b"{}"),
    "an empty length": post(b"Content-Length:\r\n", b"{}"),
    "a length beyond all integers": post(b"Content-Length: 99999999999999999999999\r\n", b"{}"),
    "a folded header": post(b"X-A: a\r\n b\r\n"),
    "folded chunks": post(b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n"),
    "a folded first line": b"POST /infer HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n",
    "space before a colon": post(b"Content-Length : 2\r\n", b"{}"),
    "bare line feeds": post(b"Content-Length: 2\r\n", b"{}").replace(b"\r\n", b"\n"),
    "a bare line feed": post(b"X-A: a\nX-B: b\r\n"),
    "a bare carriage return": post(b"X-A: a\rX-B: b\r\n"),
    "a zero byte": post(b"X-A: a\0b\r\n"),
    "chunks misspelt": post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "chunks behind a vertical tab": post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "chunks, then identity": post(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    "identity, then chunks": post(b"Transfer-Encoding: identity, chunked\r\n", b"0\r\n\r\n"),
    "compressed chunks": post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "chunks twice": post(CHUNKED + CHUNKED, b"0\r\n\r\n"),
    "identity": post(b"Transfer-Encoding: identity\r\n", b"{}"),
    "chunks in HTTP/1.0": post(CHUNKED, b"0\r\n\r\n", version=b"1.0"),
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": post(b"", version=b"1.2"),
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": post(b"Host: other\r\n"),
    "a header without a name": post(b": a\r\n"),
    "a header without a colon": post(b"abc\r\n"),
    "a space in the path": b"GET /a b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a control character in the path": b"GET /\x01 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a byte above 127 in the path": b"GET /\xe4 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a method that there is not": b"STEAL / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a hexadecimal prefix of a chunk": post(CHUNKED, b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a signed chunk": post(CHUNKED, b"+2\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk": post(CHUNKED, b"-2\r\n{}\r\n0\r\n\r\n"),
    "a chunk size with a space": post(CHUNKED, b"2 \r\n{}\r\n0\r\n\r\n"),
    "a chunk beyond all integers": post(CHUNKED, b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    "a chunk longer than it says": post(CHUNKED, b"1\r\n{}\r\n0\r\n\r\n"),
    "chunks with bare line feeds": post(CHUNKED, b"2\n{}\n0\n\n"),
    "an extension with a bare line feed": post(CHUNKED, b"2;\nxx\r\n{}\r\n0\r\n\r\n"),
    "a trailer": post(CHUNKED, b"2\r\n{}\r\n0\r\nX-A: b\r\n\r\n"),
    "a length as trailer": post(CHUNKED, b"2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"),
    "too many headers": post(b"".join(b"X-%d: a\r\n" % number for number in range(MAX_HEADERS))),
    "a header that is too long": post(b"X-A: " + b"a" * (40 << 10) + b"\r\n"),
    "a path that is too long": b"GET /" + b"a" * (40 << 10) + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_can_be_understood_in_two_ways_is_refused_and_ends_the_connection(address, name):
    with connect(address) as sock:
        sock.sendall(AMBIGUOUS[name] + GET)
        answer = read_all(sock)
    (status,) = statuses(answer)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status == (431 if "too" in name else 400), answer[:500]
    assert b"connection: close" in head.lower()
    assert b"application/problem+json" in head
    assert json.loads(body)["detail"].endswith(".")
    assert json.loads(body)["status"] == status


def test_a_refusal_is_never_taken_for_the_answer_to_the_request_before(address):
    with connect(address) as sock:
        sock.sendall(GET + b"nonsense\r\n\r\n" + GET)
        answer = read_all(sock)
    assert statuses(answer) == [200]


def test_requests_behind_each_other_are_answered_in_order(address):
    with connect(address) as sock:
        sock.sendall(GET + GET.replace(b"/healthz", b"/nothing") + LAST)
        answer = read_all(sock)
    assert statuses(answer) == [200, 404, 200]


def test_too_many_requests_behind_each_other_end_the_connection(address):
    with connect(address) as sock:
        sock.sendall(GET * (MAX_PIPELINED * 4))
        answer = read_all(sock)
    assert statuses(answer) == [200]


def test_a_body_of_a_get_is_not_the_next_request(address):
    hidden = b"DELETE /models/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(address) as sock:
        head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(hidden)
        sock.sendall(head + hidden + LAST)
        assert statuses(read_all(sock)) == [200, 200]


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_an_upgrade_is_not_made_and_what_follows_is_not_read(address, body):
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" + length
    with connect(address) as sock:
        sock.sendall(upgrade + b"\r\n" + body + GET)
        assert statuses(read_all(sock)) == [200]


def test_chunks_that_are_mostly_framing_are_refused(address):
    head = post(CHUNKED + b"Content-Type: application/json\r\n")
    for chunk in (b"1\r\n \r\n", b"1;" + b"a" * 200 + b"\r\n \r\n"):
        with connect(address) as sock:
            sock.sendall(head)
            with contextlib.suppress(ConnectionError):
                for _ in range(2000):
                    sock.sendall(chunk * 100)
            answer = read_all(sock)
        assert statuses(answer) in ([400], []), answer


def test_a_body_that_nobody_wants_is_not_read_without_end(address):
    with connect(address) as sock:
        sock.sendall(post(b"Content-Length: 999999999999\r\n", path=b"/nothing"))
        sent = 0
        with contextlib.suppress(ConnectionError, TimeoutError):
            while sent < 64 << 20:
                sent += sock.send(bytes(1 << 16))
    assert sent < 64 << 20


# A server with short deadlines. It answers with the number of bytes of the body, slowly where the path says so.


async def counting(scope, receive, send):
    if scope["type"] != "http":
        return
    count, more = 0, True
    while more and scope["path"] != "/early":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        count, more = count + len(message["body"]), message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(1.2)
    body = b"x" * (32 << 20) if scope["path"] == "/large" else str(count).encode()
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def serving(limits: Limits) -> Iterator[tuple[tuple[str, int], uvicorn.Server]]:
    config = uvicorn.Config(
        counting, port=0, http=GuardedProtocol.bound_to(limits), ws="none", lifespan="off", loop="uvloop",
        log_config=None, access_log=False,
    )  # fmt: skip
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    wait_until(lambda: running.started)
    try:
        yield running.servers[0].sockets[0].getsockname(), running
    finally:
        running.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def short() -> Iterator[tuple[tuple[str, int], uvicorn.Server]]:
    before = http_protocol.PACE_S
    http_protocol.PACE_S = 0.8
    limits = dataclasses.replace(Limits(), connections=60, head_s=0.5, idle_s=1, slowest_bytes_per_s=10_000)
    with serving(limits) as running:
        yield running
    http_protocol.PACE_S = before


SLOW_HEADS = {
    "nothing": b"",
    "part of a request line": b"GET /hea",
    "part of a header": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ",
    "all but the last line": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "line ends": b"\r\n\r\n",
}


@pytest.mark.parametrize("name", SLOW_HEADS)
def test_a_head_has_a_deadline_however_it_is_fed(short, name):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(SLOW_HEADS[name])
        answer = read_all(sock)
    assert statuses(answer) == ([] if name == "nothing" else [408])


def test_a_head_that_trickles_does_not_move_its_deadline(short):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        end = time.monotonic() + 8
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < end:
                sock.sendall(b"X-A: a\r\n")
                time.sleep(0.05)
        assert time.monotonic() < end


def test_the_second_head_of_a_connection_has_a_deadline_too(short):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT")
        assert statuses(read_all(sock)) == [200, 408]


def test_a_slow_answer_is_not_cut_by_the_deadline_of_the_next_head(short):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET / HT")
        assert statuses(read_all(sock)) == [200, 408]


@pytest.mark.parametrize(
    ("framing", "pieces"),
    [
        (b"Content-Length: 100\r\n", [b"x" * 99]),
        (b"Content-Length: 100\r\n", []),
        (CHUNKED, [b"2\r\nab\r\n"] * 3),
        (CHUNKED, [b"5\r\nab"]),
    ],
)
def test_a_body_that_is_not_as_long_as_it_says_has_a_deadline(short, framing, pieces):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(post(framing))
        for piece in pieces:
            sock.sendall(piece)
        assert statuses(read_all(sock)) == [408]


def test_a_body_that_trickles_is_refused_and_one_that_flows_is_not(short):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(post(b"Content-Length: 100000\r\n"))
        end = time.monotonic() + 15
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < end:
                sock.sendall(b"x")
                time.sleep(0.01)
        assert time.monotonic() < end
    with connect(address) as sock:
        sock.sendall(post(b"Connection: close\r\nContent-Length: 60000\r\n"))
        for _ in range(6):
            sock.sendall(b"x" * 10_000)
            time.sleep(0.2)
        assert read_all(sock).endswith(b"60000")


def test_an_answer_that_is_not_read_is_given_up(short):
    address, running = short
    with connect(address) as sock:
        sock.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: len(running.server_state.connections) == 1)
        wait_until(lambda: not running.server_state.connections, 20)


def test_an_answer_that_is_read_is_given_whole(short):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = 0
        while data := sock.recv(1 << 20):
            received += len(data)
            time.sleep(0.02)
    assert received > 32 << 20


def test_an_idle_connection_is_closed_also_after_an_answer_that_came_before_the_body(short):
    address, running = short
    with connect(address) as sock:
        sock.sendall(post(b"Content-Length: 4\r\n", b"ab", path=b"/early"))
        answer = sock.recv(65536)
        assert b"200 OK" in answer
        # A client that would send its next request on this connection would find it closed.
        assert b"connection: close" in answer.lower()
        sock.sendall(b"cd")
        assert read_all(sock) == b""
    wait_until(lambda: not running.server_state.connections)


def test_a_client_is_told_that_the_connection_ends_with_an_answer_before_the_body(short):
    address, _ = short
    url = f"http://{address[0]}:{address[1]}"
    with httpx.Client(timeout=30) as client:
        for count in (1 << 10, 3 << 20):
            # In pieces, so that the answer is there before the last of them.
            pieces = (bytes(count) for _ in range(4))
            early = client.post(f"{url}/early", content=pieces, headers={"content-length": str(4 * count)})
            assert early.status_code == 200
            assert client.post(f"{url}/whole", content=b"abc").text == "3"


def test_a_body_that_is_wrong_after_its_answer_gets_no_second_one(short):
    address, _ = short
    with connect(address) as sock:
        sock.sendall(post(b"Transfer-Encoding: chunked\r\n", b"2\r\nab\r\n", path=b"/early"))
        assert b"200 OK" in sock.recv(65536)
        sock.sendall(b"no chunk\r\n")
        assert read_all(sock) == b""


def test_at_the_cap_those_who_wait_make_room_and_those_who_work_are_left_alone(short):
    address, running = short
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(connect(address)) for _ in range(10)]
        for sock in busy:
            sock.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        half_open = [stack.enter_context(connect(address)) for _ in range(200)]
        for sock in half_open:
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert len(running.server_state.connections) <= 60
        with connect(address) as good:
            good.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert statuses(read_all(good)) == [200]
        assert all(statuses(read_all(sock)) == [200] for sock in busy)


def test_at_the_cap_with_all_at_work_the_next_is_told_to_come_later(short):
    address, _ = short
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(connect(address)) for _ in range(60)]
        for sock in busy:
            sock.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(0.3)
        with connect(address) as late:
            answer = read_all(late)
        assert statuses(answer) == [503]
        assert b"retry-after: 1" in answer
        assert all(statuses(read_all(sock)) == [200] for sock in busy)


def test_two_hundred_half_open_connections_do_not_starve_a_good_client(server, address):
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(connect(address))
            sock.sendall(b"POST /compile HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
        for _ in range(20):
            assert server.http.get("/healthz").status_code == 200
