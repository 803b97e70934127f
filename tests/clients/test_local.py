"""relaxd of one process: no server to run, none that others can reach, none that stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from relaxd import Client, ServerUnreachable, local, local_client

from tests.conftest import ROOT, child_pids, wait_until

SAMPLE = ROOT / "service/web/samples/digits-mlp.pt2"


def command(*arguments: object, data: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RELAXD_DATA": str(data), "COLUMNS": "140"}
    return subprocess.run(
        [sys.executable, "-m", "relaxd", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=120
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local") / "data"


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    kept = ("id", "state", "model", "recipe", "verify", "signature", "toolchain")
    steps = [{name: step[name] for name in ("stage", "pass", "changed", "ops")} for step in document["steps"]]
    errors = [output["max_abs_error"] for output in document["verification"]["outputs"]]
    return {**{name: document[name] for name in kept}, "steps": steps, "errors": errors}


def test_compile_local_says_what_a_server_says(server_url: str, data: Path, tmp_path: Path) -> None:
    done = command("compile", SAMPLE, "-p", "course", "--local", "--json", "-o", tmp_path / "lib.zip", data=data)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "lib.zip").read_bytes().startswith(b"PK")
    with Client(server_url) as client:
        there = client.compile(SAMPLE, passes="course").raw
    assert without_times(json.loads(done.stdout)) == without_times(there)
    # What was compiled is there for the next command, and nothing runs in between.
    shown = command("show", "last", "--url", "local", data=data)
    assert f"succeeded {there['id']}" in shown.stdout


def test_a_local_failure_says_what_to_do_without_a_server(data: Path) -> None:
    failed = command("compile", SAMPLE, "-p", "fuse_dense_ad", "--local", data=data)
    assert failed.returncode == 2
    assert "fuse_dense_add" in failed.stderr
    assert "problems/" not in failed.stderr
    with local_client(data), pytest.raises(ServerUnreachable, match="did not start"), local_client(data):
        pass


def test_the_server_ends_with_the_block_and_nobody_else_reaches_it(data: Path) -> None:
    with local_client(data) as client:
        (server,) = child_pids_of_this_process()
        compiled = client.compile(SAMPLE, passes="course")
        assert compiled(np.zeros((1, 64), "float32")).shape == (1, 10)
        sockets = subprocess.run(["ls", "-l", f"/proc/{server}/fd"], capture_output=True, text=True, check=True).stdout
        inodes = {line.split("socket:[")[1][:-1] for line in sockets.splitlines() if "socket:[" in line}
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert not inodes & {fields[9] for fields in listening if fields[3] == "0A"}
    assert not Path(f"/proc/{server}").exists()


def child_pids_of_this_process() -> list[int]:
    found = [
        pid for task in Path("/proc/self/task").iterdir() for pid in map(int, (task / "children").read_text().split())
    ]
    return [pid for pid in found if b"--socket" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_server_ends_when_its_owner_is_killed(data: Path) -> None:
    code = f"import relaxd, time\nwith relaxd.local_client({str(data)!r}):\n    print('up', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        (server,) = child_pids(owner.pid)
        owner.kill()
        owner.wait()
    wait_until(lambda: not Path(f"/proc/{server}").exists())


def test_without_relaxd_beside_the_client_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ServerUnreachable, match="not installed beside its client"), local_client(tmp_path):
        pass


def test_where_local_data_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAXD_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/share")
    assert local.data_folder() == Path("/share/relaxd")
    monkeypatch.setenv("RELAXD_DATA", "/mine")
    assert local.data_folder() == Path("/mine")
