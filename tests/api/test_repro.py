"""GET /compile/{id}/repro.zip: what a real server gives runs again without it, and ends alike."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest


def rerun(answer: httpx.Response, folder: Path) -> tuple[int, str]:
    """Unpacks the archive and runs its script with nothing of this checkout in reach; exit code and output."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(folder)
    return run_again(folder)


def run_again(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", str(folder / "rerun.py")],
        cwd=folder,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_a_success_is_run_again_and_verified_alike(server, model_file, tmp_path):
    compilation = server.compile(model_file("mlp"), {"passes": "course", "verify": "every_step"}).json()
    code, output = rerun(server.http.get(f"/compile/{compilation['id']}/repro.zip"), tmp_path)
    assert code == 0, output
    assert output.strip().endswith("AS RECORDED.")
    for step in compilation["steps"][1:]:
        assert step["pass"] in output
    assert "note: t" not in output  # the same torch and tvm
    assert {path.name for path in tmp_path.glob("ir/*")} >= {"000-import.py", "001-fusion.py", "006-llvm.ll"}
    shown = server.http.get("/ir/fusion", params={"id": compilation["id"]}).text
    assert (tmp_path / "ir/001-fusion.py").read_text() == shown


def test_its_request_makes_the_same_compilation_again(server, model_file, tmp_path):
    sent = {
        "passes": ["fuse_dense_add"],
        "inputs": [{"name": "x", "shape": ["rows", 4]}],
        "pass_context": {"opt_level": 3},
    }
    answer = server.compile(model_file("dynamic"), sent)
    assert answer.status_code == 201, answer.text
    compilation = answer.json()
    answer = server.http.get(f"/compile/{compilation['id']}/repro.zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        again = server.compile(archive.read("model"), json.loads(archive.read("request.json"))).json()
    assert again["id"] == compilation["id"]


@pytest.mark.parametrize(
    ("model", "request_part"),
    [
        ("unsupported", {}),
        ("mlp", {"target": {"cpu": "no-such-cpu"}}),
        ("wide_concat", {"passes": ["legalize_ops"]}),
    ],
    ids=["an unsupported operator", "an unknown cpu", "a pass that dies"],
)
def test_a_failure_fails_alike(server, model_file, tmp_path, model, request_part):
    problem = server.compile(model_file(model), request_part).json()
    assert problem["repro"] == f"/compile/{problem['compilation']}/repro.zip"
    shown = server.http.get(problem["href"]).json()["problem"]
    assert shown["repro"] == problem["repro"]
    code, output = rerun(server.http.get(problem["repro"]), tmp_path)
    assert code == 1, output
    assert output.strip().endswith("AS RECORDED.")
    assert f"  detail: {problem['detail']}" in output
    assert json.loads((tmp_path / "problem.json").read_text())["detail"] == problem["detail"]


def test_a_pass_that_fails_is_named_with_tvm_s_words(server, model_file, tmp_path):
    compilation = server.compile(model_file("mlp"), {"passes": ["fuse_dense_add", "dead_code_elimination"]}).json()
    code, _ = rerun(server.http.get(f"/compile/{compilation['id']}/repro.zip"), tmp_path)
    assert code == 0
    # No pass of the catalogue fails on any model that is known: the bundled source of one is made to.
    source = tmp_path / "source/service/compiler/passes/dead_code_elimination.py"
    broken = re.sub(
        r"(def apply\(.*\n)", r"\1        raise RuntimeError('Check failed: planted')\n", source.read_text()
    )
    assert broken != source.read_text()
    source.write_text(broken)
    code, output = run_again(tmp_path)
    assert code == 2
    assert "  step: 2\n  pass: dead_code_elimination\n" in output
    assert "detail: Pass 'dead_code_elimination' failed at step 2: planted\n" in output
    document = json.loads((tmp_path / "compilation.json").read_text())
    problem = {"type": "/problems/pass-failed", "step": 2, "pass": "dead_code_elimination", "detail": "Other words."}
    (tmp_path / "compilation.json").write_text(json.dumps(document | {"state": "failed", "problem": problem}))
    code, output = run_again(tmp_path)
    assert code == 1
    assert "AS RECORDED, but for the words of the detail" in output


def test_an_end_that_is_not_the_recorded_one_is_said(server, model_file, tmp_path):
    problem = server.compile(model_file("mlp"), {"target": {"cpu": "no-such-cpu"}}).json()
    answer = server.http.get(problem["repro"])
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    request = json.loads((tmp_path / "request.json").read_text())
    (tmp_path / "request.json").write_text(json.dumps(request | {"target": {"cpu": "native", "threads": 0}}))
    done = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "rerun.py")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "OTHERWISE: recorded is /problems/build-failed" in done.stdout


def test_nothing_of_it_stays_on_the_server(server, model_file):
    compilation = server.compile(model_file("mlp"), {"passes": []}).json()
    server.http.get(f"/compile/{compilation['id']}/repro.zip")
    assert not list((server.data / "scratch").rglob("*.zip"))


def test_an_unknown_compilation_has_none(server):
    answer = server.http.get("/compile/nonsense/repro.zip")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-compilation")
