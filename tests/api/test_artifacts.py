"""/artifacts on a real server: what is taken away runs without relaxd."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from service import publications
from service.host_cpu import missing_flags


@pytest.fixture(scope="module")
def compilation(server, model_file):
    return server.compile(model_file("dynamic"), {}).json()


@pytest.fixture(scope="module")
def folder(server, compilation, tmp_path_factory):
    answer = server.http.get(f"/artifacts/{compilation['id']}/archive")
    assert answer.status_code == 200, answer.text
    path = tmp_path_factory.mktemp("artifact")
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(path)
    return path


def run(folder, *arguments):
    # No path to relaxd, and a folder of its own.
    return subprocess.run(
        [sys.executable, "-P", str(folder / "run.py"), *arguments], cwd=folder, capture_output=True, text=True, check=False, env={"PATH": ""}
    )  # fmt: skip


def test_the_manifest_says_what_a_loader_must_know(server, compilation):
    manifest = server.http.get(f"/artifacts/{compilation['id']}").json()["manifest"]
    assert manifest["signature"] == compilation["signature"]
    assert manifest["verification"]["tolerances"]
    assert missing_flags(manifest["cpu_flags"]) == []
    assert server.http.get("/artifacts/nonsense").json()["type"] == "/problems/unknown-model"


def test_what_was_taken_away_gives_the_same_numbers(server, compilation, folder, tmp_path):
    (spec,) = compilation["signature"]["inputs"]
    value = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    np.savez(tmp_path / "in.npz", **{spec["name"]: value})
    done = run(folder, str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
    assert done.returncode == 0, done.stderr
    served = server.http.post(
        "/infer", json={"model": compilation["id"], "inputs": {spec["name"]: value.tolist()}}
    ).json()
    for name, theirs in served["outputs"].items():
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")[name], np.array(theirs, np.float32))
    assert f"takes {spec['name']}: float32" in run(folder).stdout


def test_wrong_inputs_are_named(compilation, folder, tmp_path):
    (spec,) = compilation["signature"]["inputs"]
    for arrays, said in (
        ({}, "missing"),
        ({spec["name"]: np.zeros((2, 4))}, "float32"),
        ({spec["name"]: np.zeros((2, 5), np.float32)}, "shape"),
        ({spec["name"]: np.zeros((2, 4), np.float32), "more": np.zeros(1)}, "more"),
    ):
        np.savez(tmp_path / "in.npz", **arrays)
        done = run(folder, str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
        assert done.returncode != 0
        assert said in done.stderr


def test_another_cpu_refuses_it(folder, tmp_path):
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("run.py", "model.so"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "cpu_flags": ["sse2", "no_such_flag"]}))
    done = run(tmp_path)
    assert done.returncode != 0
    assert "no_such_flag" in done.stderr


def test_a_server_on_another_cpu_does_not_load_it(server, compilation, monkeypatch):
    monkeypatch.setattr(publications, "missing_flags", lambda needed: needed[:1])
    from service.nouns import Step
    from service.records import Compilation

    document = {**compilation, "steps": [], "results": []}
    made = Compilation.from_json(document, tuple[Step, ...]())
    journal = SimpleNamespace(changes=0, versions=lambda name: [])
    published = publications.Publications(journal, SimpleNamespace(get=lambda key: made))
    with pytest.raises(publications.CpuLacksFeatures) as caught:
        published.find(compilation["id"])
    assert caught.value.extensions["flags"]
