"""Serving with real workers under faults: crashes, hangs, full queues, swaps and unloading, and what callers see of them."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time

import httpx
import numpy as np
import pytest

from tests.conftest import wait_until

SECONDS = 600 if os.environ.get("RELAXD_LONG_TESTS") else 4


@pytest.fixture
def served(new_server, model_file):
    """A function that starts a server with a dense layer compiled and loaded: server, id, input, its workers' pids."""

    def start(**environment: str):
        server = new_server(**environment)
        document = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
        name = document["signature"]["inputs"][0]["name"]
        assert ask(server, document["id"], name).status_code == 200
        wait_until(lambda: len(server.worker_pids()) == 1)
        return server, document["id"], name

    return start


def ask(server, model: str, name: str, value: float = 1.0, rows: int = 1, **rest) -> httpx.Response:
    body = {"inputs": [{"name": name, "shape": [rows, 4], "datatype": "FP32", "data": [value] * 4 * rows}], **rest}
    return httpx.post(f"{server.url}/v2/models/{model}/infer", json=body, timeout=60)


def test_a_crash_is_503_for_what_the_worker_had_and_another_is_there_at_once(served):
    server, model, name = served()
    before = ask(server, model, name).json()
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, server, model, name) for _ in range(8)]
        wait_until(
            lambda: f'relaxd_waiting_inferences{{compilation="{model}"}} 8.0' in server.http.get("/metrics").text
        )
        os.kill(worker, signal.SIGSEGV)
        os.kill(worker, signal.SIGCONT)
        answers = [each.result() for each in asked]
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "SIGSEGV" in answer.json()["error"]
    # Before anybody asks again.
    wait_until(lambda: [pid for pid in server.worker_pids() if pid != worker])
    assert ask(server, model, name).json() == before


def test_a_crash_is_no_matter_of_other_models_nor_of_other_replicas(served, model_file):
    server, model, name = served()
    (worker,) = server.worker_pids()
    other = server.compile(model_file("dynamic"), {"passes": "course"}).json()["id"]
    assert ask(server, other, name).status_code == 200
    load = f"/v2/repository/models/{other}/load"
    assert server.http.post(load, json={"parameters": {"replicas": 2}}).status_code == 200
    others = [pid for pid in server.worker_pids() if pid != worker]
    assert len(others) == 2
    for pid in (worker, *others):
        os.kill(pid, signal.SIGSTOP)

    def waiting(key: str, count: int) -> bool:
        return f'relaxd_waiting_inferences{{compilation="{key}"}} {count}.0' in server.http.get("/metrics").text

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        lost = [threads.submit(ask, server, model, name) for _ in range(2)]
        wait_until(lambda: waiting(model, 2))
        # The replica with the fewest calls takes the next: two for each.
        spread = [threads.submit(ask, server, other, name) for _ in range(4)]
        wait_until(lambda: waiting(other, 4))
        os.kill(worker, signal.SIGKILL)
        assert {each.result().status_code for each in lost} == {503}
        assert all(each.result().headers["retry-after"] == "1" for each in lost)
        # While the others have not answered yet, the one that died is there again.
        assert ask(server, model, name).status_code == 200
        assert not any(each.done() for each in spread)
        os.kill(others[0], signal.SIGKILL)
        wait_until(lambda: sum(each.done() for each in spread) == 2)
        assert [each.result().status_code for each in spread if each.done()] == [503, 503]
        os.kill(others[1], signal.SIGCONT)
        assert sorted(each.result().status_code for each in spread) == [200, 200, 503, 503]
    wait_until(lambda: len(server.worker_pids()) == 3)
    assert ask(server, other, name).status_code == 200


def test_a_hung_worker_ends_at_its_deadline_and_a_timeout_sooner(served):
    server, model, name = served(RELAXD_INFER_S="2")
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    begun = time.monotonic()
    answer = ask(server, model, name, parameters={"timeout": 100_000})
    assert answer.status_code == 504
    assert time.monotonic() - begun < 2
    assert ask(server, model, name).status_code in (400, 503)
    assert ask(server, model, name).status_code == 200
    assert server.worker_pids() != [worker]


def test_a_full_queue_answers_503_at_once(served):
    server, model, name = served(RELAXD_QUEUED_INFERENCES="4", RELAXD_INFER_S="20")
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        asked = [threads.submit(ask, server, model, name) for _ in range(12)]
        done, _ = concurrent.futures.wait(asked, timeout=10, return_when=concurrent.futures.FIRST_COMPLETED)
        assert {each.result().status_code for each in done} == {503}
        assert all(each.result().headers["retry-after"] == "1" for each in done)
        wait_until(lambda: sum(each.done() for each in asked) == 8)
        os.kill(worker, signal.SIGCONT)
        statuses = sorted(each.result().status_code for each in asked)
    assert statuses == [200] * 4 + [503] * 8


def test_replicas_are_processes_of_their_own(served):
    server, model, name = served()
    assert (
        server.http.post(f"/v2/repository/models/{model}/load", json={"parameters": {"replicas": 2}}).status_code == 200
    )
    wait_until(lambda: len(server.worker_pids()) == 2)
    stopped = server.worker_pids()[0]
    os.kill(stopped, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, server, model, name) for _ in range(4)]
        wait_until(lambda: sum(each.done() for each in asked) >= 2)
        os.kill(stopped, signal.SIGCONT)
        assert {each.result().status_code for each in asked} == {200}
    assert (
        server.http.post(f"/v2/repository/models/{model}/load", json={"parameters": {"replicas": 1}}).status_code == 200
    )
    wait_until(lambda: len(server.worker_pids()) == 1)
    server.http.post(f"/v2/repository/models/{model}/unload")
    wait_until(lambda: not server.worker_pids())


def test_stopping_answers_what_was_asked(served):
    server, model, name = served()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, server, model, name, float(number)) for number in range(8)]
        time.sleep(0.02)
        assert server.stop() == 0
        statuses = []
        for each in asked:
            try:
                statuses.append(each.result().status_code)
            except httpx.TransportError:
                statuses.append(0)  # came after the listener had closed
    assert set(statuses) <= {200, 503, 0}


def test_no_answer_is_wrong_or_lost_while_workers_die_and_versions_change(served, model_file):
    server, first, name = served()
    second = server.compile(model_file("dynamic"), {"passes": "course"}).json()["id"]
    server.http.post("/models/dense", json={"compilation": first})
    right = {
        value: np.array(ask(server, first, name, value).json()["outputs"][0]["data"]) for value in map(float, range(5))
    }
    over = threading.Event()
    counts: dict[int, int] = {}
    wrong: list[str] = []

    def client(seed: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as http:
            number = seed
            while not over.is_set():
                number += 1
                value, rows = float(number % 5), 1 + number % 3
                body = {
                    "inputs": [{"name": name, "shape": [rows, 4], "datatype": "FP32", "data": [value] * 4 * rows}],
                    "id": str(number),
                }
                answer = http.post("/v2/models/dense/infer", json=body)
                counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
                if answer.status_code == 200:
                    found = answer.json()
                    close = np.allclose(
                        np.reshape(found["outputs"][0]["data"], (rows, -1)), right[value], rtol=1e-4, atol=1e-5
                    )
                    if not close or found["id"] != str(number):
                        wrong.append(answer.text)

    threads = [threading.Thread(target=client, args=(1000 * seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    end, turn = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        turn += 1
        server.http.post("/models/dense", json={"compilation": (first, second)[turn % 2]})
        time.sleep(0.2)
        for pid in server.worker_pids()[:1]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert set(counts) <= {200, 503}
    assert counts[200] > 20


def test_loading_and_unloading_leaves_nothing_behind(served):
    server, model, name = served()

    def open_files() -> int:
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    def memory_kb() -> int:
        with open(f"/proc/{server.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def rounds(count: int) -> None:
        for _ in range(count):
            assert server.http.post(f"/v2/repository/models/{model}/unload").status_code == 200
            assert ask(server, model, name).status_code == 200

    rounds(20)
    before = open_files(), memory_kb()
    rounds(10_000 if os.environ.get("RELAXD_LONG_TESTS") else 60)
    wait_until(lambda: len(server.worker_pids()) == 1)
    assert open_files() <= before[0] + 2
    assert memory_kb() < before[1] + (8 << 10)
