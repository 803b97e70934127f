"""POST /inspect and GET /operators, and the other formats through POST /compile."""

from __future__ import annotations

import json

import numpy as np
import pytest


def inspect(server, content, request=None):
    files = {"model": ("model", content)}
    if request is not None:
        files["request"] = (None, json.dumps(request))
    return server.http.post("/inspect", files=files)


DENSE = {"inputs": [{"name": "input", "shape": ["batch", 8]}]}


def test_a_model_is_described_and_nothing_is_kept(server, model_file):
    before = len(server.http.get("/compile").json()["compilations"])
    # A worker that another test has kept may have a folder there.
    kept = set((server.data / "scratch").iterdir())
    answer = inspect(server, model_file("mlp").read_bytes())
    assert answer.status_code == 200
    report = answer.json()
    assert report["format"] == "exported_program"
    assert report["signature"]["inputs"] == [{"name": "input", "shape": [2, 8], "dtype": "float32"}]
    assert report["parameters"] == {"count": 8 * 16 + 16 + 16 * 4 + 4, "bytes": 4 * (8 * 16 + 16 + 16 * 4 + 4)}
    counts = {entry["name"]: entry["count"] for entry in report["operators"]}
    assert counts["aten.relu.default"] == 1
    assert report["unsupported"] == []
    assert len(server.http.get("/compile").json()["compilations"]) == before
    assert set((server.data / "scratch").iterdir()) <= kept


@pytest.mark.parametrize("form", ["scripted", "traced", "fx"])
def test_all_formats_are_inspected_and_compiled(server, model_file, form):
    content = model_file("mlp", form).read_bytes()
    request = DENSE
    report = inspect(server, content, request).json()
    assert report["format"] == ("fx" if form == "fx" else "torchscript")
    assert report["signature"]["inputs"] == [{"name": "input", "shape": ["batch", 8], "dtype": "float32"}]
    made = server.compile(content, request)
    assert made.status_code in (200, 201), made.text
    assert made.json()["signature"] == report["signature"]
    expected = server.compile(model_file("mlp")).json()
    values = np.random.default_rng(0).standard_normal((2, 8)).astype("float32").tolist()
    answers = [
        server.http.post("/infer", json={"model": made_id, "inputs": {"input": values}}).json()["outputs"]["output_0"]
        for made_id in (made.json()["id"], expected["id"])
    ]
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-5, atol=1e-6)


def test_every_operator_that_is_not_supported_is_told_with_its_place(server, model_file):
    report = inspect(server, model_file("unsupported").read_bytes()).json()
    told = {entry["operator"]: entry for entry in report["unsupported"]}
    assert set(told) == {"aten.special_erfcx.default", "aten.special_airy_ai.default"}
    assert told["aten.special_erfcx.default"]["count"] == 2
    assert told["aten.special_airy_ai.default"]["module_path"] == "inner"
    assert "models.py" in told["aten.special_erfcx.default"]["source_line"]
    assert told["aten.special_erfcx.default"]["hint"]
    problem = server.compile(model_file("unsupported")).json()
    assert problem["type"] == "/problems/import-failed"
    assert set(problem["operators"]) == set(told)
    assert {entry["operator"]: entry["count"] for entry in problem["unsupported"]} == {
        name: entry["count"] for name, entry in told.items()
    }


def test_a_format_without_shapes_needs_inputs(server, model_file):
    answer = inspect(server, model_file("mlp", "scripted").read_bytes())
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/signature-mismatch")
    assert "`input: Tensor`" in answer.json()["detail"]


def test_a_traced_module_brings_its_shapes(server, model_file):
    report = inspect(server, model_file("mlp", "traced").read_bytes()).json()
    assert report["signature"]["inputs"] == [{"name": "input", "shape": [2, 8], "dtype": "float32"}]


@pytest.mark.parametrize(
    ("content", "request_part", "slug"),
    [(b"", None, "empty-model"), (b"text", None, "unsupported-format"), (b"PK", None, "damaged-model")],
)
def test_faults_are_problems_as_everywhere(server, content, request_part, slug):
    kept = set((server.data / "scratch").iterdir())
    answer = inspect(server, content, request_part)
    assert answer.json()["type"] == f"/problems/{slug}"
    assert set((server.data / "scratch").iterdir()) <= kept


def test_unknown_fields_are_refused(server, model_file):
    answer = inspect(server, model_file("mlp").read_bytes(), {"formt": "fx"})
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/unknown-field")


def test_the_operators_are_listed(server):
    answer = server.http.get("/operators").json()
    assert "aten.add.Tensor" in answer["supported"]
    assert not set(answer["supported"]) & set(answer["decomposed"])
