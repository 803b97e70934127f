"""The OpenAPI document is what the server answers."""

from __future__ import annotations

import json

from service.api.app import create_app
from service.api.ir_schemas import SnapshotView
from service.api.schemas import (
    CompilationsView,
    CompilationView,
    HealthView,
    InferResponse,
    PassesView,
    ProblemView,
    RecipesView,
)
from service.settings import Settings
from tests.conftest import ROOT


def test_the_committed_document_describes_the_server(server):
    served = server.http.get("/openapi.json").json()
    assert served == json.loads((ROOT / "docs/openapi.json").read_text())
    names = served["components"]["schemas"]["CompileRequest"]["properties"]["passes"]["anyOf"]
    presets = {recipe["name"] for recipe in server.http.get("/recipes").json()["recipes"]}
    assert any(set(each.get("enum", ())) == presets for each in names)


def test_before_the_workers_have_started_any_pass_name_fits():
    document = create_app(Settings()).openapi()
    passes = document["components"]["schemas"]["CompileRequest"]["properties"]["passes"]
    assert {"type": "string"} in passes["anyOf"]


def test_answers_have_exactly_the_fields_of_their_schemas(server, model_file):
    compiled = server.compile(model_file("mlp"), {"passes": "course"})
    answers = {
        CompilationView: compiled,
        CompilationsView: server.http.get("/compile", params={"limit": 5}),
        SnapshotView: server.http.get("/ir/fusion", headers={"Accept": "application/json"}),
        PassesView: server.http.get("/passes"),
        RecipesView: server.http.get("/recipes"),
        HealthView: server.http.get("/healthz"),
        ProblemView: server.http.get("/nothing"),
        InferResponse: server.http.post(
            "/infer", json={"model": compiled.json()["id"], "inputs": {"input": [[0.0] * 8] * 2}}
        ),
    }
    for view, answer in answers.items():
        parsed = view.model_validate_json(answer.content)
        assert parsed.model_dump(by_alias=True, exclude_unset=True) == answer.json(), view.__name__
        required = {field.alias or name for name, field in view.model_fields.items() if field.is_required()}
        assert required <= set(answer.json())
