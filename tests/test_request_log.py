"""Each request has an id, in its answer, its Problem and the log, and the log has a line of JSON for it, whatever door it took."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from service.request_log import PIECE_BYTES, JsonLines, RequestLog, RequestNote, current, request_id
from tests.conftest import ROOT, wait_until


@pytest.mark.parametrize("given", ["a", "2f1b-77", "Root=1-67891233-abcdef", "a.b_c:d/e+f=", "x" * 128])
def test_an_id_of_the_caller_is_taken(given):
    assert request_id(given) == given


@pytest.mark.parametrize("given", [None, "", "x" * 129, "a b", "a\r\nb", "é", '"', "<script>", "a\n", "a;b"])
def test_what_is_no_id_has_a_new_one_in_its_place(given):
    made = [request_id(given) for _ in range(3)]
    assert len(set(made)) == 3
    assert all(re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]{8}", each) for each in made)


def test_lines_are_written_together_in_pieces_that_a_pipe_takes_as_one():
    written: list[bytes] = []

    async def note() -> None:
        log = RequestLog("failed", written.append)
        for number in range(60):
            log.note(RequestNote(str(number), "POST", "/infer", "m"), 400)
            log.note(RequestNote("fine"), 200)
        twice = RequestNote("twice")
        log.note(twice, 408)
        log.note(twice, 499)
        assert not written
        log.flush()
        log.flush()

    asyncio.run(note())
    lines = [json.loads(line) for line in b"".join(written).splitlines()]
    assert [line["request_id"] for line in lines] == [*map(str, range(60)), "twice"]
    assert lines[-1]["status"] == 408
    assert len(written) > 1
    assert all(piece.endswith(b"}\n") and len(piece) <= PIECE_BYTES for piece in written)


def test_other_lines_of_the_log_are_json_too_and_have_the_id_of_their_request():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("service.x", logging.ERROR, "", 0, "a %s", ("b",), sys.exc_info())
    token = current.set(RequestNote("seven"))
    try:
        text = JsonLines().format(record)
    finally:
        current.reset(token)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["message"], line["level"], line["request_id"]) == ("a b", "ERROR", "seven")
    assert "two\nlines" in line["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


def lines_of(server):
    """The lines of the log that are the server's; a zygote's own error output is text."""
    text = (server.data.parent / f"{server.data.name}.log").read_text()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")]


def noted(server, **wanted):
    """The line of a request, as soon as it is there."""

    def find():
        requests = [line for line in lines_of(server) if line["logger"] == "relaxd.request"]
        return [line for line in requests if all(line[name] == value for name, value in wanted.items())]

    found = wait_until(find)
    assert len(found) == 1, found
    return found[0]


def raw(server, data: bytes) -> bytes:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(data)
        received = b""
        while piece := sock.recv(65536):
            received += piece
        return received


def test_every_request_has_its_line_whatever_door_it_took(new_server, model_file):
    first = new_server()
    document = first.compile(model_file("dynamic"), {"passes": []}).json()
    model, name = document["id"], document["signature"]["inputs"][0]["name"]
    command = [sys.executable, "-m", "service", "keys", "create", "ann", "--scopes", "admin", "--data", str(first.data)]
    key = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()[-1]
    first.stop()
    server = new_server(RELAXD_REQUEST_LOG="all")
    server.http.headers["Authorization"] = f"Bearer {key}"

    def ask(method: str, path: str, status: int, identifier: str, **more):
        headers = {**more.pop("headers", {}), "X-Request-Id": identifier}
        answer = server.http.request(method, path, headers=headers, **more)
        assert answer.status_code == status, answer.text
        assert answer.headers["x-request-id"] == identifier
        line = noted(server, request_id=identifier)
        assert (line["method"], line["status"]) == (method, status)
        assert line["duration_ms"] > 0
        return answer, line

    body = {"inputs": [{"name": name, "shape": [1, 4], "datatype": "FP32", "data": [1.0] * 4}]}
    path = f"/v2/models/{model}/infer"
    for identifier, headers in (("fast", {}), ("route", {"TE": "trailers"})):
        _, line = ask("POST", path, 200, identifier, json=body, headers=headers)
        assert (line["path"], line["model"], line["caller"]) == ("/v2/models/{model}/infer", model, "ann")
        plain = {"model": model, "inputs": {name: [[0.0] * 5]}}
        answer, line = ask("POST", "/infer", 400, f"{identifier}-wrong", json=plain, headers=headers)
        assert (line["path"], line["model"], line["caller"]) == ("/infer", model, "ann")
        assert answer.json()["request_id"] == f"{identifier}-wrong"
    _, line = ask("POST", f"/v2/models/{model}/versions/1/infer", 200, "version", json=body)
    assert line["path"] == "/v2/models/{model}/versions/{version}/infer"
    assert ask("HEAD", "/healthz", 200, "head")[1]["path"] == "/healthz"
    assert ask("GET", f"/compile/{model}", 200, "get")[1]["path"] == "/compile/{id}"
    assert ask("GET", "/nothing/at/all", 404, "nowhere")[1]["path"] is None
    # Refused before the application sees them.
    answer = raw(server, b"GET / HTTP/1.1\r\nX-Request-Id: twohosts\r\nHost: a\r\nHost: b\r\n\r\n")
    assert b"\r\nx-request-id: twohosts\r\n" in answer
    line = noted(server, request_id="twohosts")
    assert (line["status"], line["path"], line["caller"]) == (400, None, None)
    identifier = re.search(rb"\r\nx-request-id: (\S+)\r\n", raw(server, b"what is this\r\n\r\n"))[1].decode()
    assert noted(server, request_id=identifier)["status"] == 400
    # Refused at the gate; what is no id is not taken.
    answer = httpx.post(server.url + path, json=body, headers={"X-Request-Id": "no id"})
    line = noted(server, request_id=answer.headers["x-request-id"])
    assert (answer.status_code, line["status"], line["caller"]) == (401, 401, None)
    server.stop()
    text = (server.data.parent / f"{server.data.name}.log").read_text()
    assert key not in text
    assert key.rpartition(".")[2] not in text


def test_failures_are_noted_by_default_and_a_lost_worker_names_its_requests(new_server, model_file):
    server = new_server()
    document = server.compile(model_file("dynamic"), {"passes": []}).json()
    model, name = document["id"], document["signature"]["inputs"][0]["name"]
    body = {"inputs": [{"name": name, "shape": [1, 4], "datatype": "FP32", "data": [1.0] * 4}]}

    def ask(identifier: str) -> httpx.Response:
        headers = {"X-Request-Id": identifier}
        return httpx.post(f"{server.url}/v2/models/{model}/infer", json=body, headers=headers, timeout=60)

    assert ask("before").status_code == 200
    worker = server.wait_for_worker()
    os.kill(worker, signal.SIGSTOP)
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(ask("lost-with-it")))
    thread.start()
    wait_until(lambda: f'relaxd_waiting_inferences{{compilation="{model}"}} 1.0' in server.http.get("/metrics").text)
    os.kill(worker, signal.SIGKILL)
    thread.join()
    assert answers[0].status_code == 503
    assert noted(server, request_id="lost-with-it")["status"] == 503
    (line,) = [line for line in lines_of(server) if "given up" in line.get("message", "")]
    assert line["logger"] == "service.replica"
    assert str(worker) in line["message"]
    assert line["message"].endswith("Requests: lost-with-it")
    assert not [line for line in lines_of(server) if line.get("request_id") == "before"]
