"""GET /compile/{id}/provenance on a real server."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def compilation(server, model_file):
    return server.compile(model_file("mlp"), {"passes": "course"}).json()


def ask(server, compilation, **params):
    return server.http.get(f"/compile/{compilation['id']}/provenance", params=params)


def test_from_a_module_to_its_instructions_and_back(server, compilation):
    server.http.get("/ir/asm", params={"id": compilation["id"]})
    everything = ask(server, compilation).json()
    module = next(origin["module"] for origin in everything["origins"] if origin["operator"].startswith("aten.addmm"))
    forward = ask(server, compilation, module=module).json()
    assert {origin["module"] for origin in forward["origins"]} == {module}
    assert all(origin["source"] for origin in forward["origins"])
    stages = {place["stage"] for place in forward["places"]}
    assert stages >= {"import", "fusion", "lowering", "fuse_tir", "tir", "llvm", "asm"}
    kernel = next(place for place in forward["places"] if place["stage"] == "asm")
    back = ask(server, compilation, stage="asm", function=kernel["function"]).json()
    assert module in {origin["module"] for origin in back["origins"]}


def test_from_a_binding(server, compilation):
    everything = ask(server, compilation).json()
    binding = next(place for place in everything["places"] if place["stage"] == "import" and place["binding"])
    if not binding["origins"]:
        binding = next(place for place in everything["places"] if place["binding"] and place["origins"])
    answer = ask(
        server,
        compilation,
        stage=binding["stage"],
        step=binding["step"],
        function=binding["function"],
        binding=binding["binding"],
    ).json()
    assert [origin["index"] for origin in answer["origins"]] == binding["origins"]
    assert binding in answer["places"]


def test_all_kernels_of_it_are_known(server, compilation):
    coverage = ask(server, compilation).json()["coverage"]
    assert coverage["kernels"] > 0
    assert coverage["with_source"] == coverage["with_origin"] == coverage["kernels"]


def test_places_are_paged(server, compilation):
    first = ask(server, compilation, limit=3).json()
    assert (len(first["places"]), first["next_offset"]) == (3, 3)
    second = ask(server, compilation, limit=3, offset=3).json()
    assert first["places"] != second["places"]
    assert first["total_places"] == second["total_places"]


@pytest.mark.parametrize(
    ("params", "status", "slug", "said"),
    [
        ({"stage": "fuse_tir"}, 400, "invalid-field", "function"),
        ({"binding": "lv"}, 400, "invalid-field", "binding"),
        ({"stage": "fuse_tir", "function": "nonsense"}, 404, "unknown-function", "nonsense"),
        ({"stage": "fuse_tir", "function": "main", "binding": "nonsense"}, 400, "invalid-field", "nonsense"),
        ({"stage": "nonsense", "function": "main"}, 404, "unknown-stage", "nonsense"),
        ({"nonsense": "1"}, 400, "unknown-field", "nonsense"),
    ],
)
def test_a_bad_question_is_refused_by_name(server, compilation, params, status, slug, said):
    answer = ask(server, compilation, **params)
    assert answer.json()["type"].endswith(slug), answer.text
    assert answer.status_code in (status, 422)
    assert said in answer.json()["detail"]


def test_nothing_comes_from_what_is_not_there(server, compilation):
    answer = ask(server, compilation, source="no_such_file.py:1").json()
    assert (answer["origins"], answer["places"]) == ([], [])
