"""Two web processes behind one address: both answer alike, see what changes at once, count together, and die alone.

While the one is stopped (SIGSTOP) a new connection is taken by the other: so a test knows who has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from uvicorn.server import ServerState

from service.channel import from_memory
from service.front_lane import FrontLane
from tests.conftest import Server, child_pids, end_server, start_server, wait_until
from tests.test_fast_lane import Connection, comparable, key_command, oip, request, requests


def front_of(server: Server) -> int | None:
    """The pid of the front, when it takes connections."""
    if "relaxd_web_processes 2.0" not in server.http.get("/metrics").text:
        return None
    return next(pid for pid in child_pids(server.process.pid) if "service.front" in command_of(pid))


def command_of(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


@contextlib.contextmanager
def stopped(pid: int):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def connected_to_front(server: Server, model, *headers: bytes):
    """A connection that the front has taken, and answered one request on."""
    with stopped(server.process.pid):
        connection = Connection(server.url)
        connection.send(infer(model, *headers))
        assert connection.answer()[0] == 200
    try:
        yield connection
    finally:
        connection.close()


def infer(model, *headers: bytes, name: str | None = None, **rest) -> bytes:
    return request(f"/v2/models/{name or model[0]}/infer", json.dumps(oip(model, **rest)).encode(), *headers)


def ask(connection: Connection, data: bytes):
    connection.send(data)
    return connection.answer()


def start(data, model_file, *flags: str, **environment: str):
    server = start_server(data, "--web-processes", "2", *flags, **environment)
    document = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
    wait_until(lambda: front_of(server), 60)
    names = [document["signature"][side][0]["name"] for side in ("inputs", "outputs")]
    return server, (document["id"], *names)


def inherit_orphans() -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


@pytest.fixture(scope="module")
def pair(tmp_path_factory, model_file):
    """A server of two web processes, and a dense layer: its id, the names of input and output."""
    # As process 1 of a container, it has to reap what its fronts leave behind.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", functools.partial(subprocess.Popen, preexec_fn=inherit_orphans))
        server, model = start(tmp_path_factory.mktemp("fronts") / "data", model_file)
    yield server, model
    end_server(server)


def metric(server: Server, name: str, label: str = "") -> float:
    """The sum of a metric over all labels, or those that have `label`."""
    found = re.findall(rf"^{name}({{[^}}]*}})? (\S+)", server.http.get("/metrics").text, re.MULTILINE)
    return sum(float(value) for labels, value in found if label in labels)


def test_what_is_no_inference_is_handed_over_with_its_connection(pair):
    server, model = pair
    with connected_to_front(server, model) as connection:
        health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        chunked = request(f"/v2/models/{model[0]}/infer", b"").replace(
            b"Content-Length: 0", b"Transfer-Encoding: chunked"
        )
        body = json.dumps(oip(model)).encode()
        # In one piece: the front answers the first and hands over from the second on.
        connection.send(infer(model, id="a") + health + infer(model, id="b"))
        assert json.loads(connection.answer()[2])["id"] == "a"
        assert json.loads(connection.answer()[2])["status"] == "ok"
        assert json.loads(connection.answer()[2])["id"] == "b"
        status, _, answer = ask(connection, chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert (status, "outputs" in json.loads(answer)) == (200, True)
    for broken in (b"what is this\r\n\r\n", b"POST /infer HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
        with connected_to_front(server, model) as connection:
            assert ask(connection, broken)[0] == 400


def test_a_body_that_comes_slowly_and_a_head_in_pieces_are_handed_over(pair):
    server, model = pair
    whole = infer(model, id="slow")
    with connected_to_front(server, model) as connection:
        connection.send(whole[:-20], whole[-20:-10], whole[-10:], pause_s=0.7)
        assert json.loads(connection.answer()[2])["id"] == "slow"
    with connected_to_front(server, model) as connection:
        connection.send(whole[:10], whole[10:50], whole[50:], pause_s=0.05)
        assert json.loads(connection.answer()[2])["id"] == "slow"


def test_an_upload_on_a_connection_of_the_front_is_compiled(pair, model_file):
    server, model = pair
    content = model_file("dynamic").read_bytes()
    parts = b'--B\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n' + content
    parts += b'\r\n--B\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"passes": "generic"}\r\n--B--\r\n'
    with connected_to_front(server, model) as connection:
        status, _, body = ask(connection, request("/compile", parts, b"Content-Type: multipart/form-data; boundary=B"))
    assert (status, json.loads(body)["id"]) == (200, model[0])


class Unread:
    """A transport whose client has not read its last answer, until it was looked at for the third time."""

    def __init__(self, transport) -> None:
        self._transport = transport
        self._looks = 3

    def __getattr__(self, name: str):
        return getattr(self._transport, name)

    def get_write_buffer_size(self) -> int:
        self._looks -= 1
        return max(self._looks, 0)


class UnreadLane(FrontLane):
    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self.transport = Unread(transport)


def test_answers_that_the_client_has_not_read_go_out_before_the_connection_is_handed_over():
    handed: list[tuple[int, bytes]] = []

    class Handed:
        def send(self, message, descriptors) -> None:
            handed.append((os.dup(descriptors[0]), from_memory(os.dup(descriptors[1]))))

    async def scenario() -> None:
        config = uvicorn.Config(lambda: None, log_config=None)
        config.load()
        made = []

        def protocol() -> UnreadLane:
            lane = UnreadLane(config, ServerState(), {FrontLane.CHANNEL: Handed()})
            made.append(lane)
            return lane

        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\n")
        while not made or not made[0]._later:
            await asyncio.sleep(0.001)
        assert not handed
        # It must not be lost, and not read twice.
        writer.write(b"Host: localhost\r\n")
        while not handed:
            await asyncio.sleep(0.001)
        with socket.socket(fileno=handed[0][0]) as client:
            client.setblocking(False)
            rest = b""
            while len(handed[0][1] + rest) < len(b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
                rest += await loop.sock_recv(client, 100)
            assert handed[0][1] + rest == b"GET / HTTP/1.1\r\nHost: localhost\r\n"
            await loop.sock_sendall(client, b"still open")
            assert await reader.readexactly(10) == b"still open"
        writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(make=requests())
def test_both_processes_answer_alike(pair, make):
    server, model = pair
    target, body, headers = make(model)
    whole = request(target, body, *headers, b"X-Request-Id: one")
    with connected_to_front(server, model) as of_front, stopped(front_of(server)):
        of_first = Connection(server.url)
        theirs = comparable(ask(of_first, whole))
        of_first.close()
    with connected_to_front(server, model) as of_front:
        assert comparable(ask(of_front, whole)) == theirs


def test_what_is_published_answers_everywhere_from_then_on_and_no_request_fails(pair, model_file):
    server, model = pair
    other = server.compile(model_file("dynamic"), {"passes": "course"}).json()["id"]
    server.http.post("/models/dense", json={"compilation": model[0]})
    over, statuses = threading.Event(), set()

    def client() -> None:
        while not over.is_set():
            # A new connection each time: both processes take some.
            connection = Connection(server.url)
            for _ in range(5):
                statuses.add(ask(connection, infer(model, name="dense"))[0])
            connection.close()

    threads = [threading.Thread(target=client) for _ in range(3)]
    with connected_to_front(server, model) as of_front:
        for thread in threads:
            thread.start()
        for turn in range(10):
            published = server.http.post("/models/dense", json={"compilation": (other, model[0])[turn % 2]}).json()
            answer = json.loads(ask(of_front, infer(model, name="dense"))[2])
            assert answer["model_version"] == str(published["version"])
        server.http.post("/models/dense", json={"version": 1})
        assert json.loads(ask(of_front, infer(model, name="dense"))[2])["model_version"] == "1"
        over.set()
        for thread in threads:
            thread.join()
        assert statuses == {200}
        server.http.delete("/models/dense")
        assert ask(of_front, infer(model, name="dense"))[0] == 404


def test_loading_and_unloading_reach_all(pair):
    server, model = pair
    path = f"/v2/repository/models/{model[0]}"
    assert server.http.post(f"{path}/load", json={"parameters": {"replicas": 2}}).status_code == 200
    assert metric(server, "relaxd_replicas", model[0]) == 4
    assert server.http.post(f"{path}/unload").status_code == 200
    wait_until(lambda: metric(server, "relaxd_replicas", model[0]) == 0)
    with connected_to_front(server, model):
        assert metric(server, "relaxd_replicas", model[0]) == 1
    assert server.http.post(f"{path}/load", json={"parameters": {"replicas": 1}}).status_code == 200


def test_counts_add_up_over_processes_and_outlive_a_front(pair):
    server, model = pair

    def counts() -> list[float]:
        (stats,) = server.http.get(f"/v2/models/{model[0]}/stats").json()["model_stats"]
        found = stats["inference_stats"]
        return [found["success"]["count"], found["fail"]["count"], metric(server, "relaxd_run_seconds_count", model[0])]

    before = counts()
    with connected_to_front(server, model) as of_front:
        assert ask(of_front, infer(model))[0] == 200
        wrong = infer(model, outputs=[{"name": "nothing"}])
        assert ask(of_front, wrong)[0] == 400
    with stopped(front_of(server)):
        connection = Connection(server.url)
        assert ask(connection, infer(model))[0] == 200
        connection.close()
    assert counts() == [before[0] + 3, before[1] + 1, before[2] + 3]
    os.kill(front_of(server), signal.SIGKILL)
    assert counts() >= [before[0] + 3, before[1] + 1, before[2] + 3]
    wait_until(lambda: front_of(server), 60)
    assert counts() == [before[0] + 3, before[1] + 1, before[2] + 3]


def test_a_front_that_dies_takes_nobody_with_it_and_is_replaced(pair):
    server, model = pair
    front = front_of(server)
    zygotes = child_pids(front)
    workers = [worker for zygote in zygotes for worker in child_pids(zygote)]
    assert zygotes
    metric(server, "relaxd_web_processes")  # for which all tell what they have
    with stopped(front):
        of_first = Connection(server.url)
        assert ask(of_first, infer(model))[0] == 200
    os.kill(front, signal.SIGKILL)
    for _ in range(20):
        assert ask(of_first, infer(model))[0] == 200
        assert httpx.get(f"{server.url}/healthz", timeout=30).status_code == 200
    of_first.close()
    assert wait_until(lambda: front_of(server), 60) != front
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in (*zygotes, *workers)))
    with connected_to_front(server, model):
        pass


@pytest.fixture
def with_keys(tmp_path, model_file, monkeypatch):
    """Such a server that asks for keys, with few inferences a second, so that the burst is what counts; and two keys."""
    data = tmp_path / "data"
    data.mkdir()
    unstarted = Server("", data, None, None)
    admin, caller = (
        key_command(unstarted, "create", name, "--scopes", scopes).split()[-1]
        for name, scopes in (("boss", "admin"), ("caller", "infer"))
    )
    original = httpx.Client.__init__

    def as_admin(self, *args, **kwargs) -> None:
        original(self, *args, **kwargs)
        self.headers["Authorization"] = f"Bearer {admin}"

    monkeypatch.setattr(httpx.Client, "__init__", as_admin)
    server, model = start(data, model_file, RELAXD_INFER_REQUESTS_PER_S="0.5", RELAXD_BURST_S="40")
    yield server, model, f"Authorization: Bearer {admin}".encode(), f"Authorization: Bearer {caller}".encode()
    end_server(server)


def test_keys_and_rates_hold_over_all_processes_and_stopping_answers_what_was_asked(with_keys):
    server, model, boss, caller = with_keys
    assert server.http.post("/models/dense", json={"compilation": model[0]}).status_code == 200

    def let_in() -> bool:
        connection = Connection(server.url)
        status = ask(connection, infer(model, caller, name="dense"))[0]
        connection.close()
        assert status in (200, 429)
        return status == 200

    begun = time.monotonic()
    with stopped(server.process.pid):
        assert all([let_in() for _ in range(12)])
    with stopped(front_of(server)):
        assert 8 <= sum(let_in() for _ in range(12)) <= 8 + (time.monotonic() - begun) / 2 + 1
    with connected_to_front(server, model, boss) as connection:
        assert ask(connection, infer(model, caller, name="dense"))[0] == 429
    key_command(server, "revoke", "caller")
    with connected_to_front(server, model, boss) as connection:
        assert ask(connection, infer(model, caller, name="dense"))[0] == 401
    front = front_of(server)
    with connected_to_front(server, model, boss) as connection:
        (worker,) = [worker for zygote in child_pids(front) for worker in child_pids(zygote)]
        with stopped(worker):
            connection.send(infer(model, boss, id="last"))
            time.sleep(0.2)
            server.process.terminate()
            time.sleep(0.5)
        status, headers, body = connection.answer()
        assert (status, json.loads(body)["id"], headers["connection"]) == (200, "last", "close")
    assert server.process.wait(30) == 0
    assert not os.path.exists(f"/proc/{front}")


def test_values_are_right_from_both(pair):
    server, model = pair
    raw = np.ones((3, 4), "float32")
    answers = []
    for pid in (server.process.pid, front_of(server)):
        with stopped(pid):
            body = {"model": model[0], "inputs": {model[1]: raw.tolist()}}
            answers.append(httpx.post(f"{server.url}/infer", json=body, timeout=30).json())
    assert answers[0] == answers[1]


def test_last_of_all_fronts_end_with_the_first_process(pair):
    server, _ = pair
    front = front_of(server)
    workers = [*child_pids(front), *(worker for zygote in child_pids(front) for worker in child_pids(zygote))]
    server.kill()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in (front, *workers)))
