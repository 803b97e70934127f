"""The fast lane and the route answer alike: whole and in pieces, right and wrong, in order, whoever goes away."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from service.fast_lane import FastLane
from tests.conftest import ROOT, wait_until

LENGTH = "Inference-Header-Content-Length"
# A header that means nothing here, and that the fast lane leaves to the route.
ROUTE = b"TE: trailers"
ID = re.compile(rb'"request_id":"[^"]*"')


class Connection:
    """A client that sends bytes as it is told."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def send(self, *pieces: bytes, pause_s: float = 0.002) -> None:
        for piece in pieces:
            self.socket.sendall(piece)
            if len(pieces) > 1:
                time.sleep(pause_s)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.decode("latin-1").rstrip("\r\n").partition(": ")
            assert name not in headers
            headers[name] = value
        return status, headers, self._file.read(int(headers["content-length"]))

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@contextmanager
def connected(server):
    connection = Connection(server.url)
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture(scope="module")
def model(server, model_file):
    """A dense layer over any batch of rows of 4: its id, and the names of input and output."""
    document = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
    return document["id"], document["signature"]["inputs"][0]["name"], document["signature"]["outputs"][0]["name"]


def taken(server) -> int:
    text = server.http.get("/metrics").text
    return int(float(re.search(r"^relaxd_fast_lane_total (\S+)", text, re.MULTILINE)[1]))


def request(target: str, body: bytes, *headers: bytes) -> bytes:
    lines = [f"POST {target} HTTP/1.1".encode(), b"Host: localhost", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def oip(model, rows: int = 1, **rest) -> dict:
    data = [float(number) for number in range(4 * rows)]
    return {"inputs": [{"name": model[1], "shape": [rows, 4], "datatype": "FP32", "data": data}], **rest}


def with_raw(model, rows: int, cut: int = 0) -> tuple[bytes, bytes]:
    values = np.arange(4 * rows, dtype="float32").tobytes()
    entry = {"name": model[1], "shape": [rows, 4], "datatype": "FP32", "parameters": {"binary_data_size": len(values)}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return head + values[: len(values) - cut], f"{LENGTH}: {len(head)}".encode()


def comparable(answer):
    """Status, headers and body without what differs between any two answers."""
    status, headers, body = answer
    kept = {name: value for name, value in headers.items() if name != "date"}
    return status, kept, re.sub(rb"urn:uuid:[0-9a-f-]+", b"", body)


SPOILED = [
    {"inputs": []}, {"id": 7}, {"more": 1}, {"outputs": [{"name": "nothing"}]}, {"parameters": {"timeout": -1}},
    {"parameters": {"binary_data_output": 3}}, {"id": "é", "parameters": {"binary_data_output": True}}, {},
]  # fmt: skip


@st.composite
def requests(draw):
    """A function from the model to the target, the body and headers of a request, right or wrong."""
    rows, cut, spoiled = draw(st.integers(0, 70)), draw(st.integers(0, 5)), draw(st.sampled_from(SPOILED))
    form = draw(st.sampled_from(["json", "raw", "plain", "oip at infer", "bytes", "whole"]))
    text = draw(
        st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"{}", b"[]", b'{"inputs": NaN}', b'{"a":1,"a":2}']))
    )
    version = draw(st.sampled_from(["", "/versions/1", "/versions/2"]))
    accept = draw(st.sampled_from([[], [b"Accept-Encoding: gzip"], [b"Accept-Encoding: deflate;q=0, gzip;q=0.5"]]))
    known = draw(st.sampled_from([True, True, True, False]))

    def make(model):
        name = model[0] if known else "nothing"
        target = f"/v2/models/{name}{version}/infer"
        if form == "json":
            return target, json.dumps({**oip(model, rows), **spoiled}).encode(), accept
        if form == "raw":
            body, header = with_raw(model, rows, cut)
            return target, body, [header, *accept]
        if form == "whole":
            return target, bytes(16 * rows - min(cut, 16 * rows)), [f"{LENGTH}: 0".encode()]
        if form == "plain":
            inputs = {model[1]: np.zeros((rows, 4)).tolist()}
            return "/infer", json.dumps({"model": name, "inputs": inputs, **spoiled}).encode(), accept
        if form == "oip at infer":
            return "/infer", json.dumps({"model": name, **oip(model, rows), **spoiled}).encode(), accept
        return draw_target(version, target), text, accept

    return make


def draw_target(version: str, target: str) -> str:
    return target if version else "/infer"


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    make=requests(),
    cuts=st.lists(st.integers(0, 1500), max_size=3),
    named=st.sampled_from([[b"X-Request-Id: a-client/17"], [b"X-Request-Id: <>"]]),
)
def test_both_doors_answer_alike(server, model, make, cuts, named):
    target, body, headers = make(model)
    with connected(server) as fast, connected(server) as slow:
        whole = request(target, body, *headers, *named)
        places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
        fast.send(*(whole[start:end] for start, end in itertools.pairwise(places)))
        slow.send(request(target, body, ROUTE, *headers, *named))
        mine, theirs = fast.answer(), slow.answer()
        if named[0].endswith(b"<>"):
            # No id: each door has given one of its own.
            assert mine[1].pop("x-request-id") != theirs[1].pop("x-request-id")
            mine, theirs = ((*each[:2], ID.sub(b"", each[2])) for each in (mine, theirs))
        assert comparable(mine) == comparable(theirs)
        assert mine[0] < 500
        if mine[1].get("connection") != "close":
            # What was learnt of the first makes no difference to one like it.
            fast.send(whole)
            assert ID.sub(b"", comparable(fast.answer())[2]) == ID.sub(b"", comparable(mine)[2])
            # The connection is where it should be: it takes another request.
            fast.send(request(f"/v2/models/{model[0]}/infer", json.dumps(oip(model)).encode()))
            assert fast.answer()[0] == 200


def numbers_of(answer):
    _, headers, body = answer
    if LENGTH.lower() in headers:
        return np.frombuffer(body[int(headers[LENGTH.lower()]) :], "<f4")
    return np.array(json.loads(body)["outputs"][0]["data"], "f4").reshape(-1)


def test_requests_alike_to_the_byte_are_read_alike_and_differ_by_their_numbers(server, model):
    target = f"/v2/models/{model[0]}/infer"
    name, output = model[1:]

    def body(rows: int, data: bytes, size: int | None = None, **rest) -> tuple[bytes, bytes]:
        parameters = {"binary_data_size": 16 * rows if size is None else size}
        entry = {"name": name, "shape": [rows, 4], "datatype": "FP32", "parameters": parameters}
        head = json.dumps({"inputs": [entry], **rest}).encode()
        return head + data, f"{LENGTH}: {len(head)}".encode()

    generator = np.random.default_rng(0)
    binary = {"parameters": {"binary_data_output": True}}
    forms = [binary, {}, {"id": "x", **binary}, {"outputs": [{"name": output, "parameters": {"binary_data": True}}]}]
    with connected(server) as fast, connected(server) as slow:
        for _ in range(4):
            for rest in forms:
                values = generator.standard_normal((2, 4)).astype("float32").tobytes()
                content, header = body(2, values, **rest)
                fast.send(request(target, content, header, b"X-Request-Id: a"))
                slow.send(request(target, content, header, b"X-Request-Id: a", ROUTE))
                mine, theirs = comparable(fast.answer()), comparable(slow.answer())
                assert mine[:1] == theirs[:1] == (200,)
                assert mine[1].get(LENGTH.lower()) == theirs[1].get(LENGTH.lower())
                np.testing.assert_allclose(numbers_of(mine), numbers_of(theirs), rtol=1e-5, atol=1e-6)
        # Bytes that are too few or too many, a version that is not there, a header that lies: each time anew.
        for data in (bytes(28), bytes(36), b""):
            content, header = body(2, data, **binary)
            fast.send(request(target, content, header))
            status, _, answer = fast.answer()
            assert (status, set(json.loads(answer))) == (400, {"error"})
        content, header = body(2, bytes(32), **binary)
        fast.send(request(target, content, header + b"0"))
        assert fast.answer()[0] == 400


def test_an_idle_connection_is_closed_by_when_it_was_idle_last():
    async def scenario() -> None:
        config = uvicorn.Config(lambda: None, log_config=None)
        config.load()
        made: list[FastLane] = []

        def protocol() -> FastLane:
            made.append(FastLane(config, ServerState(), {}))
            return made[0]

        loop = asyncio.get_running_loop()
        listener = await loop.create_server(protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        while not made:
            await asyncio.sleep(0.001)
        (lane,) = made
        lane.waiting_since = loop.time() - lane.timeout_keep_alive / 2
        lane.timeout_keep_alive_handler()
        assert lane.timeout_keep_alive_task is not None
        assert not lane.transport.is_closing()
        lane._answering = True
        lane.waiting_since = loop.time() - 2 * lane.timeout_keep_alive
        lane.timeout_keep_alive_handler()
        assert not lane.transport.is_closing(), "it is answering"
        lane._answering = False
        lane.timeout_keep_alive_handler()
        assert await reader.read() == b""
        writer.close()
        listener.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_the_fast_lane_takes_the_usual_and_leaves_the_unusual(server, model):
    body = json.dumps(oip(model)).encode()
    target = f"/v2/models/{model[0]}/infer"
    raw, header = with_raw(model, 3)
    plain = json.dumps({"model": model[0], "inputs": {model[1]: [[0.0] * 4]}}).encode()
    before = taken(server)
    with connected(server) as connection:
        for usual in (
            request(target, body),
            request(target, raw, header),
            request("/infer", plain),
        ):
            connection.send(usual)
            connection.answer()
        connection.send(request(target, body)[:-7], request(target, body)[-7:])
        assert connection.answer()[0] == 200
    with connected(server) as connection:
        connection.send(request(target, b"{"))
        assert connection.answer()[1]["connection"] == "close"
    assert taken(server) == before + 5
    unusual = [
        request(target, body, b"Expect: 100-continue"),
        request(target, body, b"Connection: close"),
        request(target, body, b"Content-Encoding: identity"),
        request(target + "?", body),
        f"POST {target} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode()
        + body
        + b"\r\n0\r\n\r\n",
        request(target, body).replace(b"Host: localhost", b"X: " + b"a" * 9000 + b"\r\nHost: localhost"),
    ]
    for each in unusual:
        with connected(server) as connection:
            connection.send(each)
            answer = (
                connection.answer()
                if b"Expect" not in each
                else (connection._file.readline(), connection._file.readline(), connection.answer())[2]
            )
            assert answer[0] == 200, each
    assert taken(server) == before + 5


def test_answers_to_pipelined_requests_keep_their_order(server, model):
    target = f"/v2/models/{model[0]}/infer"

    def numbered(number: int, *headers: bytes) -> bytes:
        return request(target, json.dumps(oip(model, 1 + number % 5, id=str(number))).encode(), *headers)

    many = [numbered(number, *([ROUTE] if number % 7 == 3 else [])) for number in range(30)]
    whole = b"".join(many)
    for size in (len(whole), 1000, len(many[0]), len(many[0]) + 10):
        with connected(server) as connection:
            for start in range(0, len(whole), size):
                connection.send(whole[start : start + size])
            answers = [connection.answer() for _ in many]
        assert [answer[0] for answer in answers] == [200] * len(many)
        assert [json.loads(answer[2])["id"] for answer in answers] == [str(number) for number in range(30)]


def test_a_slow_client_is_left_to_the_parser_and_answered(server, model):
    whole = request(f"/v2/models/{model[0]}/infer", json.dumps(oip(model)).encode())
    with connected(server) as connection:
        connection.send(whole[:-20], whole[-20:-10], whole[-10:], pause_s=0.7)
        assert connection.answer()[0] == 200


def test_clients_that_vanish_hurt_nobody(server, model):
    target = f"/v2/models/{model[0]}/infer"
    body = json.dumps(oip(model)).encode()
    for number in range(60):
        connection = Connection(server.url)
        whole = request(target, body)
        connection.send(whole if number % 2 else whole[: len(whole) - number])
        if number % 3 == 0:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    with connected(server) as connection:
        connection.send(request(target, body))
        assert connection.answer()[0] == 200


def test_both_doors_count_alike(server, model):
    target = f"/v2/models/{model[0]}/infer"

    def counts():
        (stats,) = server.http.get(f"/v2/models/{model[0]}/stats").json()["model_stats"]
        return stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]

    wrong = json.dumps({"model": model[0], "inputs": {model[1]: [[0.0] * 5]}}).encode()
    for headers in ([], [ROUTE]):
        before = counts()
        right = json.dumps(oip(model)).encode()
        for path, body in ((target, right), (target, b"{"), ("/infer", wrong)):
            with connected(server) as connection:
                connection.send(request(path, body, *headers))
                connection.answer()
        assert counts() == (before[0] + 1, before[1] + 2)


def key_command(server, *arguments: str) -> str:
    command = [sys.executable, "-m", "service", "keys", *arguments, "--data", str(server.data)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_keys_hold_in_the_fast_lane_too(new_server, model_file):
    first = new_server()
    document = first.compile(model_file("dynamic"), {"passes": []}).json()
    (spec,) = document["signature"]["inputs"]
    key = key_command(first, "create", "caller", "--scopes", "admin").split()[-1]
    reader = key_command(first, "create", "reader", "--scopes", "read").split()[-1]
    first.stop()
    server = new_server()
    body = json.dumps(oip((document["id"], spec["name"]))).encode()
    target = f"/v2/models/{document['id']}/infer"

    def ask(*headers: bytes) -> int:
        with connected(server) as connection:
            connection.send(request(target, body, *headers))
            return connection.answer()[0]

    bearer = f"Authorization: Bearer {key}".encode()
    server.http.headers["Authorization"] = f"Bearer {key}"
    assert ask() == 401
    assert ask(bearer[:-1]) == 401
    assert ask(f"Authorization: Bearer {reader}".encode()) == 403
    before = taken(server)
    assert [ask(bearer) for _ in range(3)] == [200] * 3
    assert taken(server) >= before + 2
    key_command(server, "create", "other", "--scopes", "admin")
    assert ask(bearer) == 200
    key_command(server, "revoke", "caller")
    assert ask(bearer) == 401


def test_another_asgi_server_needs_no_fast_lane(tmp_path):
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "service.main:app", "--port", "0", "--http", "h11", "--loop", "asyncio"],
            cwd=ROOT, stderr=log, stdout=log, env={"PATH": "/usr/bin:/bin", "RELAXD_DATA": str(tmp_path / "data"), "HOME": "/root"},
        )  # fmt: skip
    try:
        found = wait_until(lambda: re.search(r"running on (http://\S+)", (tmp_path / "log").read_text()), 90)
        with httpx.Client(base_url=found[1]) as http:
            assert http.get("/v2/health/live").json() == {"live": True}
            assert http.post("/infer", json={}).status_code == 401, "keys are asked for where nobody knows the address"
    finally:
        process.terminate()
        process.wait(30)
