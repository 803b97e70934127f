"""Processes are killed where it hurts; nothing that was finished is lost, nobody else is harmed."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Server, child_pids, wait_until

MLP_INPUT = {"input": [[0.5] * 8] * 2}


def infer(server: Server, compilation: str):
    return server.http.post("/infer", json={"model": compilation, "inputs": MLP_INPUT})


def start_slow_compile(server: Server, model: Path) -> str:
    """A Compilation that is past its import and busy; its id."""
    compilation = server.compile(model, {"passes": ["fuse_dense_add", "legalize_ops"]}, "respond-async").json()["id"]
    wait_until(lambda: server.http.get(f"/compile/{compilation}").json()["steps"])
    return compilation


def ended(server: Server, compilation: str) -> dict:
    return server.http.get(f"/compile/{compilation}", headers={"Prefer": "wait=100"}).json()


def test_after_a_kill_all_that_was_finished_works_without_recompiling(new_server, model_file):
    server = new_server()
    done = server.compile(model_file("mlp"), {"passes": "course"}).json()
    before = infer(server, done["id"]).json()
    texts = [server.http.get(step["href"]).text for step in done["steps"]]
    running = start_slow_compile(server, model_file("deep"))
    zygotes, workers = server.zygote_pids(), server.worker_pids()
    server.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in zygotes + workers))

    server = new_server()
    assert server.http.get(f"/compile/{done['id']}").json() == done
    assert infer(server, done["id"]).json() == before
    assert [server.http.get(step["href"]).text for step in done["steps"]] == texts
    assert server.compile(model_file("mlp"), {"passes": "course"}).status_code == 200
    interrupted = server.http.get(f"/compile/{running}").json()
    assert (interrupted["state"], interrupted["problem"]["type"]) == ("failed", "/problems/interrupted")
    assert interrupted["steps"][0]["stage"] == "import"
    assert server.http.get(interrupted["steps"][0]["href"]).status_code == 200
    assert infer(server, running).status_code == 409
    again = server.compile(model_file("deep"), {"passes": ["fuse_dense_add", "legalize_ops"]}, "respond-async")
    assert (again.status_code, again.json()["id"]) == (202, running)


@pytest.mark.parametrize(
    ("number", "slug", "status"),
    [
        (signal.SIGKILL, "worker-killed", 500),
        (signal.SIGSEGV, "worker-crashed", 422),
        (signal.SIGABRT, "worker-crashed", 422),
    ],
)
def test_a_worker_that_dies_fails_its_one_compilation_and_names_signal_and_step(
    new_server, model_file, number, slug, status
):
    server = new_server()
    compilation = start_slow_compile(server, model_file("deep"))
    for pid in server.worker_pids():
        os.kill(pid, number)
    found = ended(server, compilation)
    problem = found["problem"]
    assert found["state"] == "failed"
    assert (problem["type"], problem["status"]) == (f"/problems/{slug}", status)
    assert problem["signal"] == number.name
    assert number.name in problem["detail"]
    assert ("pass" in problem and problem["pass"] in problem["detail"]) or problem["phase"] == "build"
    assert server.http.get(found["steps"][0]["href"]).status_code == 200
    assert server.compile(model_file("mlp")).status_code == 201
    assert list((server.data / "scratch").iterdir()) == []


def test_a_killed_zygote_is_replaced(new_server, model_file):
    server = new_server()
    done = server.compile(model_file("mlp")).json()["id"]
    assert infer(server, done).status_code == 200
    running = start_slow_compile(server, model_file("deep"))
    for pid in server.zygote_pids():
        os.kill(pid, signal.SIGKILL)
    assert ended(server, running)["problem"]["type"] in ("/problems/worker-killed", "/problems/internal-error")
    wait_until(lambda: infer(server, done).status_code == 200)
    assert server.compile(model_file("mlp"), {"passes": []}).status_code == 201
    assert server.http.get("/healthz").json()["status"] == "ok"


def test_a_killed_infer_worker_costs_at_most_its_request(new_server, model_file):
    server = new_server()
    done = server.compile(model_file("mlp")).json()["id"]
    before = infer(server, done).json()
    for _ in range(3):
        os.kill(server.wait_for_worker(), signal.SIGKILL)
        wait_until(lambda: infer(server, done).status_code == 200)
        assert infer(server, done).json() == before


def test_infer_workers_survive_the_compiles_of_others(new_server, model_file):
    server = new_server()
    done = server.compile(model_file("mlp")).json()["id"]
    infer(server, done)
    worker = server.wait_for_worker()
    assert server.compile(model_file("counter")).status_code == 422
    compilation = start_slow_compile(server, model_file("deep"))
    server.http.delete(f"/compile/{compilation}")
    assert infer(server, done).status_code == 200
    assert worker in server.worker_pids()


def test_a_compile_over_its_deadline_is_killed_and_keeps_its_snapshots(new_server, model_file):
    server = new_server(RELAXD_COMPILE_S="8")
    # Each round costs seconds; the import and the first passes do not.
    rounds = ["fuse_dense_add", "legalize_ops", *["annotate_tir_op_pattern", "fold_constant", "fuse_ops"] * 20]
    answer = server.compile(model_file("deep"), {"passes": rounds})
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, "/problems/deadline-exceeded")
    assert problem["limit_s"] == 8
    wait_until(lambda: server.worker_pids() == [])
    steps = server.http.get(problem["href"]).json()["steps"]
    assert server.http.get(steps[0]["href"]).status_code == 200
    assert server.compile(model_file("fma")).status_code == 201


def test_a_compile_over_its_memory_limit_fails_alone(new_server, model_file):
    server = new_server(RELAXD_COMPILE_MEMORY_BYTES=str(24 << 20), RELAXD_COMPILE_S="60")
    answer = server.compile(model_file("deep"))
    assert answer.status_code == 422
    # Without memory even the report of its lack may fail; then the deadline ends the worker.
    assert answer.json()["type"].removeprefix("/problems/") in (
        "memory-limit-exceeded",
        "worker-crashed",
        "deadline-exceeded",
    )
    assert server.http.get("/healthz").json()["status"] == "ok"
    assert list((server.data / "scratch").iterdir()) == []


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_library_is_never_loaded_and_is_compiled_again_when_sent_again(new_server, model_file, harm):
    server = new_server()
    done = server.compile(model_file("mlp")).json()
    before = infer(server, done["id"]).json()
    digest = done["artifact"]["library_sha256"]
    server.stop()
    library = server.data / "objects" / digest[:2] / digest
    library.chmod(0o600)
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    if harm == "remove":
        library.unlink()
    else:
        library.write_bytes(bytes(content) if harm == "flip" else bytes(content[:100]))

    server = new_server()
    answer = infer(server, done["id"])
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/store-damaged")
    assert server.compile(model_file("mlp")).status_code == 201
    assert infer(server, done["id"]).json() == before


def test_a_clean_stop_ends_all_processes_and_says_what_was_interrupted(new_server, model_file):
    server = new_server()
    running = start_slow_compile(server, model_file("deep"))
    processes = server.zygote_pids() + server.worker_pids()
    assert processes
    assert server.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)
    server = new_server()
    assert server.http.get(f"/compile/{running}").json()["problem"]["type"] == "/problems/interrupted"


def test_a_second_server_on_the_same_data_is_refused(new_server):
    server = new_server()
    second = subprocess.run(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--data", str(server.data)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert second.returncode == 1
    assert "another server" in second.stderr
    assert "Traceback" not in second.stderr
    assert server.http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("variable", "words"),
    [("RELAXD_COMPILE_S", "RELAXD_COMPILE_S must be a number"), ("RELAXD_PASSES", "RELAXD_PASSES")],
)
def test_a_wrong_setting_is_named(tmp_path, variable, words):
    started = subprocess.run(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--data", str(tmp_path / "d")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, variable: "soon"},
    )
    assert started.returncode == 1
    assert words in started.stderr


def test_nothing_is_left_open_after_many_compiles_and_failures(new_server, model_file):
    server = new_server()
    good, bad = model_file("fma"), model_file("cholesky")
    server.compile(good)
    server.compile(bad)

    def open_files() -> int:
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in [server.process.pid, *server.zygote_pids()])

    before = open_files()
    for count in range(1, 9):
        assert server.compile(good, {"passes": ["dead_code_elimination"] * count}).status_code == 201
        assert server.compile(bad).status_code == 422
    wait_until(lambda: open_files() <= before + 2)
    assert server.worker_pids() == []


def libraries(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_only_the_workers_that_need_them_load_torch_and_tvm(new_server, model_file):
    server = new_server()
    done = server.compile(model_file("mlp")).json()["id"]
    infer(server, done)
    assert "libtorch" not in libraries(server.process.pid)
    assert "libtvm" not in libraries(server.process.pid)
    worker = server.wait_for_worker()
    assert "libtvm" in libraries(worker)
    assert "libtorch" not in libraries(worker)
    for zygote in server.zygote_pids():
        assert len(list(Path(f"/proc/{zygote}/task").iterdir())) == 1, "a zygote with threads can hang its children"
        assert child_pids(zygote) in ([], [worker])


def test_a_dead_zygote_comes_back_by_itself(new_server, model_file):
    server = new_server()
    server.compile(model_file("mlp"))
    for pid in server.zygote_pids():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: server.http.get("/healthz").json()["status"] != "ok", 10)
    wait_until(lambda: server.http.get("/healthz").json()["status"] == "ok", 60)


def test_a_stop_answers_those_who_wait(new_server, model_file):
    server = new_server()
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(server.compile, model_file("deep"), {"passes": ["fuse_dense_add", "legalize_ops"]})
        server.wait_for_worker()
        assert server.stop() == 0
        answer = waiting.result()
    assert answer.json()["type"] in ("/problems/interrupted", "/problems/shutting-down")


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_wrong_port_is_refused(port):
    started = subprocess.run(
        [sys.executable, "-m", "service", "serve", "--port", port],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 2
    assert "--port" in started.stderr
