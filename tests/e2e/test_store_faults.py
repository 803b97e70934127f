"""The disk lets the server down, clocks jump, files rot: nothing that was finished is lost, nothing half is served."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from service.journal import SCHEMA_VERSION
from tests.conftest import ROOT, Server, end_server, start_server, wait_until

MLP_INPUT = {"input": [[0.5] * 8] * 2}
IS_ROOT = os.geteuid() == 0


def infer(server: Server, compilation: str):
    return server.http.post("/infer", json={"model": compilation, "inputs": MLP_INPUT})


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def all_whole(server: Server, done: dict, before: dict) -> None:
    """A Compilation is as it was: document, IR, predictions; and nothing was left behind."""
    assert server.http.get(f"/compile/{done['id']}").json() == done
    assert infer(server, done["id"]).json() == before
    for step in done["steps"]:
        assert server.http.get(step["href"]).status_code == 200
    wait_until(lambda: list((server.data / "scratch").iterdir()) == [], 20)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own of 24 MiB, for the data folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"mount: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def server_at(tmp_path):
    """Starts servers on a given data folder."""
    started = []

    def start(data: Path, **environment: str) -> Server:
        started.append(start_server(data, **environment))
        return started[-1]

    yield start
    for running in started:
        end_server(running)


@pytest.mark.skipif(not IS_ROOT, reason="mounting a small disk needs root")
def test_a_full_disk_loses_nothing_and_is_told(small_disk, server_at, model_file):
    memory = shared_memory()
    server = server_at(small_disk / "data")
    done = server.compile(model_file("mlp")).json()
    before = infer(server, done["id"]).json()
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    refused = server.compile(model_file("deep"))
    assert refused.status_code == 507, refused.text
    assert refused.json()["type"] == "/problems/storage-full"
    # What needs no room works, also while there is none.
    assert infer(server, done["id"]).json() == before
    assert server.http.get("/healthz").status_code == 200
    filler.unlink()
    all_whole(server, done, before)
    assert server.compile(model_file("fma")).status_code == 201
    assert server.stop() == 0
    all_whole(server_at(small_disk / "data"), done, before)
    assert shared_memory() == memory


@pytest.mark.skipif(not IS_ROOT, reason="mounting a disk anew needs root")
def test_a_disk_that_becomes_read_only_loses_nothing_and_serves_on(small_disk, server_at, model_file):
    server = server_at(small_disk / "data")
    done = server.compile(model_file("mlp")).json()
    before = infer(server, done["id"]).json()
    # The journal is open for writing, which keeps a mount from becoming read-only; what is written fails all the same.
    again = subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=False, capture_output=True)
    if again.returncode == 0:
        refused = server.compile(model_file("fma"))
        assert refused.status_code >= 500
        assert refused.json()["type"].startswith("/problems/")
        assert infer(server, done["id"]).json() == before
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    server.stop()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    started = subprocess.run(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--data", str(small_disk / "data")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert started.returncode == 1
    assert "Read-only file system" in started.stderr
    assert "Traceback" not in started.stderr
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    all_whole(server_at(small_disk / "data"), done, before)


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "remove"])
def test_rotten_files_are_noticed_by_their_hash_and_made_again(new_server, model_file, harm):
    server = new_server()
    done = server.compile(model_file("mlp"), {"passes": "generic"}).json()
    before = infer(server, done["id"]).json()
    server.stop()
    for file in (server.data / "objects").glob("??/*"):
        content = bytearray(file.read_bytes())
        file.chmod(0o644)
        if harm == "remove":
            file.unlink()
        elif harm == "flip":
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        else:
            file.write_bytes(b"" if harm == "empty" else content[: len(content) // 2])

    server = new_server()
    # The record is whole; of what rotted nothing is served.
    assert server.http.get(f"/compile/{done['id']}").json() == done
    for answer in (infer(server, done["id"]), server.http.get(done["steps"][0]["href"])):
        assert (answer.status_code, answer.json()["type"]) == (500, "/problems/store-damaged")
    archive = server.http.get(f"/artifacts/{done['id']}/archive")
    assert (archive.status_code, archive.json()["type"]) == (500, "/problems/store-damaged")
    # Sent again it is made again, with the same numbers.
    assert server.compile(model_file("mlp"), {"passes": "generic"}).status_code == 201
    assert infer(server, done["id"]).json() == before
    assert all(server.http.get(step["href"]).status_code == 200 for step in done["steps"])


def test_a_library_that_rots_is_compiled_again_from_the_model_that_is_kept(new_server, model_file):
    server = new_server()
    done = server.compile(model_file("mlp"), {"passes": "generic"}).json()
    before = infer(server, done["id"]).json()
    server.stop()
    digest = done["artifact"]["library_sha256"]
    library = server.data / "objects" / digest[:2] / digest
    library.chmod(0o644)
    library.write_bytes(library.read_bytes()[:-1])
    server = new_server()
    assert infer(server, done["id"]).json()["type"] == "/problems/store-damaged"
    # No upload: the request names the Compilation and goes on from its step 0, with the same passes.
    passes = [{"name": step["pass"], "options": step["options"]} for step in done["steps"] if step["pass"]]
    request = json.dumps({"from": {"id": done["id"], "step": 0}, "passes": passes})
    again = server.http.post("/compile", files={"request": (None, request)})
    assert (again.status_code, again.json()["id"]) == (201, done["id"]), again.text
    assert infer(server, done["id"]).json() == before


def test_a_journal_of_a_newer_version_is_refused_and_not_touched(new_server, model_file):
    server = new_server()
    done = server.compile(model_file("mlp")).json()
    server.stop()
    journal = server.data / "journal.sqlite3"
    db = sqlite3.connect(journal)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = journal.read_bytes()
    started = subprocess.run(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--data", str(server.data)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert started.returncode == 1
    assert "start the newer relaxd" in started.stderr
    assert "Traceback" not in started.stderr
    assert journal.read_bytes() == before
    db = sqlite3.connect(journal)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.close()
    server = new_server()
    assert server.http.get(f"/compile/{done['id']}").json() == done


def test_a_clock_that_jumps_expires_nothing_and_stops_nothing(new_server, model_file):
    server = new_server(RELAXD_EXPIRE_S="3600")
    done = server.compile(model_file("mlp")).json()
    before = infer(server, done["id"]).json()
    server.stop()
    # A journal that says that it was written in the future, or long ago, is what a jump of the clock leaves behind.
    db = sqlite3.connect(server.data / "journal.sqlite3")
    for year in ("2099", "1970"):
        db.execute("UPDATE compilations SET document = replace(document, ?, ?)", (done["created_at"][:4], year))
        db.commit()
        server = new_server(RELAXD_EXPIRE_S="3600")
        assert infer(server, done["id"]).json() == before
        assert server.http.get(f"/compile/{done['id']}").status_code == 200
        server.stop()
        db.execute("UPDATE compilations SET document = replace(document, ?, ?)", (year, done["created_at"][:4]))
        db.commit()
    db.close()


@pytest.mark.parametrize("victim", ["server", "zygotes", "workers"])
def test_whatever_is_killed_leaves_no_process_no_file_and_no_memory(new_server, model_file, victim):
    memory, folders = shared_memory(), set(Path("/tmp").glob("relaxd*"))
    server = new_server()
    done = server.compile(model_file("mlp")).json()
    before = infer(server, done["id"]).json()
    running = server.compile(model_file("deep"), {"passes": ["fuse_dense_add", "legalize_ops"]}, "respond-async").json()
    wait_until(lambda: len(server.worker_pids()) >= 2, 30)
    processes = [*server.zygote_pids(), *server.worker_pids()]
    if victim == "server":
        server.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
        server = new_server()
    else:
        killed = server.zygote_pids() if victim == "zygotes" else server.worker_pids()
        for pid in killed:
            os.kill(pid, 9)
        gone = processes if victim == "zygotes" else killed
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in gone))
    ended = server.http.get(f"/compile/{running['id']}", headers={"Prefer": "wait=60"}).json()
    assert ended["state"] == "failed"
    assert ended["artifact"] is None
    wait_until(lambda: infer(server, done["id"]).status_code == 200, 60)
    all_whole(server, done, before)
    assert server.stop() == 0
    assert shared_memory() == memory
    assert set(Path("/tmp").glob("relaxd*")) <= folders | set(Path("/tmp").glob("relaxd-battery-*"))
