"""`from`, `until` and `keep` of POST /compile: Compilations that begin or end elsewhere."""

from __future__ import annotations

import json

import pytest

from tests.conftest import end_server, start_server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of this file's own: what another test has compiled would be answered from the store."""
    running = start_server(tmp_path_factory.mktemp("going_on") / "data")
    yield running
    end_server(running)


def going_on(server, request, **files):
    parts = {"request": (None, json.dumps(request), "application/json"), **files}
    return server.http.post("/compile", files=parts)


def test_until_ends_after_the_last_pass_of_a_stage(server, model_file):
    compiled = server.compile(model_file("mlp"), {"passes": "course", "until": "lowering"})
    assert compiled.status_code == 201, compiled.text
    document = compiled.json()
    assert document["state"] == "succeeded"
    assert [step["stage"] for step in document["steps"]] == ["import", "fusion", "lowering"]
    assert (document["artifact"], document["verification"], document["results"]) == (None, None, [])
    assert document["recipe"]["until"] == "lowering"
    again = server.compile(model_file("mlp"), {"passes": "course", "until": "lowering"})
    assert (again.status_code, again.json()["id"]) == (200, document["id"])
    inferred = server.http.post("/infer", json={"model": document["id"], "inputs": {}})
    assert inferred.json()["type"] == "/problems/compilation-not-ready"
    whole = server.compile(model_file("mlp"), {"passes": "course"}).json()
    assert whole["id"] != document["id"]


def test_until_the_import_runs_no_pass(server, model_file):
    document = server.compile(model_file("mlp"), {"passes": "course", "until": "import"}).json()
    assert [step["stage"] for step in document["steps"]] == ["import"]


def test_until_a_stage_that_the_recipe_has_not_is_refused(server, model_file):
    answer = server.compile(model_file("mlp"), {"passes": ["fuse_dense_add"], "until": "fuse_tir"})
    assert (answer.status_code, answer.json()["field"]) == (400, "until") or answer.json()["field"] == "until"
    assert "fusion" in answer.json()["detail"]
    assert server.compile(model_file("mlp"), {"until": "asm"}).json()["field"] == "until"


def test_a_kept_worker_runs_only_what_is_new(server, model_file):
    first = server.compile(
        model_file("mlp"), {"passes": ["fuse_dense_add", "lower_to_tensorir"], "keep": True, "verify": "every_step"}
    ).json()
    assert first["reused_steps"] == 0
    second = going_on(
        server, {"from": {"id": first["id"], "step": 2}, "passes": ["fuse_tir"], "keep": True, "verify": "every_step"}
    ).json()
    assert second["reused_steps"] == 3
    assert [step["pass"] for step in second["steps"]] == [None, "fuse_dense_add", "lower_to_tensorir", "fuse_tir"]
    assert second["steps"][:3] == [
        {**step, "href": step["href"].replace(first["id"], second["id"])} for step in first["steps"]
    ]
    assert next(each for each in second["timings"] if each["phase"] == "import")["cpu_ms"] == 0
    alone = server.compile(model_file("mlp"), {"passes": "course", "verify": "every_step"}).json()
    assert alone["id"] == second["id"]
    for stage in ("fusion", "lowering", "fuse_tir", "tir"):
        mine = server.http.get(f"/ir/{stage}", params={"id": second["id"]})
        assert mine.status_code == 200
    third = going_on(
        server,
        {
            "from": {"id": second["id"], "step": 1},
            "passes": ["legalize_ops", "fuse_tir"],
            "keep": True,
            "verify": "every_step",
        },
    ).json()
    assert third["state"] == "succeeded", third
    assert third["reused_steps"] == 2
    assert third["verification"]["passed"]


def test_what_a_kept_worker_made_is_what_a_new_one_makes(server, new_server, model_file):
    passes = ["fold_constant", "fuse_dense_add", "legalize_ops", "fuse_tir"]
    server.compile(model_file("mlp"), {"passes": passes[:2], "keep": True})
    kept = server.compile(model_file("mlp"), {"passes": passes}).json()
    assert kept["reused_steps"] == 3
    other = new_server()
    fresh = other.compile(model_file("mlp"), {"passes": passes}).json()
    assert fresh["reused_steps"] == 0
    sides = ((server, kept), (other, fresh))
    for stage in ("import", "fusion", "lowering", "fuse_tir", "tir"):
        mine, theirs = (each.http.get(f"/ir/{stage}", params={"id": document["id"]}).text for each, document in sides)
        assert mine == theirs
    for figure in ("op_changes", "constants", "flops", "functions_changed"):
        assert len({str([step["figures"][figure] for step in document["steps"]]) for _, document in sides}) == 1
    assert kept["artifact"]["library_sha256"] == fresh["artifact"]["library_sha256"]


def test_from_needs_no_kept_worker(server, model_file):
    first = server.compile(model_file("fma"), {"passes": ["fuse_ewise_fma", "legalize_ops"]}).json()
    second = going_on(server, {"from": {"id": first["id"], "step": 1}, "passes": ["lower_to_tensorir"]}).json()
    assert second["reused_steps"] == 0
    assert [step["pass"] for step in second["steps"]] == [None, "fuse_ewise_fma", "lower_to_tensorir"]
    assert second["model"] == first["model"]


def test_a_worker_is_given_up_with_the_compilation_that_it_ran_last(server, model_file):
    first = server.compile(model_file("dynamic"), {"passes": ["fuse_dense_add"], "keep": True}).json()
    server.http.delete(f"/compile/{first['id']}")
    again = server.compile(model_file("dynamic"), {"passes": ["fuse_dense_add", "legalize_ops"]}).json()
    assert (again["state"], again["reused_steps"]) == ("succeeded", 0)


def test_the_same_compilation_again_is_answered_from_the_store(server, model_file):
    request = {"passes": ["legalize_ops", "fuse_tir"], "keep": True}
    first = server.compile(model_file("dynamic"), request).json()
    again = server.compile(model_file("dynamic"), request)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])


@pytest.mark.parametrize(
    ("base", "slug"),
    [
        ({"id": "nonsense", "step": 0}, "unknown-compilation"),
        ({"id": None, "step": 9}, "unknown-step"),
        ({"id": None, "step": -1}, "invalid-field"),
        ({"id": None}, "invalid-field"),
        ({"id": None, "step": 0, "more": 1}, "unknown-field"),
    ],
)
def test_a_wrong_beginning_is_refused(server, model_file, base, slug):
    first = server.compile(model_file("fma"), {"passes": ["legalize_ops"]}).json()
    if base["id"] is None:
        base = {**base, "id": first["id"]}
    answer = going_on(server, {"from": base, "passes": []})
    assert answer.json()["type"] == f"/problems/{slug}", answer.text


def test_another_model_cannot_go_on(server, model_file):
    first = server.compile(model_file("fma"), {"passes": ["legalize_ops"]}).json()
    with model_file("mlp").open("rb") as file:
        answer = going_on(
            server, {"from": {"id": first["id"], "step": 0}}, model=("m.pt2", file, "application/octet-stream")
        )
    assert answer.json()["field"] == "from.id"


def test_without_a_model_and_a_beginning_there_is_nothing_to_compile(server):
    answer = going_on(server, {"passes": []})
    assert answer.json()["type"] == "/problems/missing-part"
