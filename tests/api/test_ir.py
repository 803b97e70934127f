"""GET /ir/{stage} on a real server."""

from __future__ import annotations

import pytest

from service.api.ir import preferred
from service.errors import NotAcceptable


@pytest.fixture(scope="module")
def compilation(server, model_file):
    return server.compile(model_file("mlp"), {"passes": "course"}).json()


def test_the_text_after_fusion_shows_primitive_sub_functions(server, compilation):
    answer = server.http.get("/ir/fusion", params={"id": compilation["id"]})
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-compilation"] == compilation["id"]
    assert answer.text.count('"Primitive": True') == 2


def test_the_json_lists_functions_and_what_they_call(server, compilation):
    answer = server.http.get(
        "/ir/fuse_tir", params={"id": compilation["id"]}, headers={"Accept": "application/json"}
    ).json()
    assert (answer["stage"], answer["step"]["pass"]) == ("fuse_tir", "fuse_tir")
    kinds = {function["name"]: function["kind"] for function in answer["functions"]}
    assert kinds["main"] == "relax"
    assert sorted(kinds.values()) == ["relax", "tensorir", "tensorir", "tensorir"]
    main = next(function for function in answer["functions"] if function["name"] == "main")
    assert set(main["calls"]) == set(kinds) - {"main"}
    assert all(function["text"] in answer["text"] or function["text"] for function in answer["functions"])


def test_without_an_id_it_is_the_latest(server, model_file):
    latest = server.compile(model_file("fma"), {"passes": []}).json()
    assert server.http.get("/ir/import").headers["x-compilation"] == latest["id"]


def test_a_cached_answer_makes_a_compilation_the_latest(server, model_file, compilation):
    server.compile(model_file("fma"), {"passes": []})
    assert server.compile(model_file("mlp"), {"passes": "course"}).status_code == 200
    assert server.http.get("/ir/fusion").headers["x-compilation"] == compilation["id"]


def test_one_function_can_be_asked_for(server, compilation):
    whole = server.http.get("/ir/fuse_tir", params={"id": compilation["id"]}).text
    main = server.http.get("/ir/fuse_tir", params={"id": compilation["id"], "function": "main"}).text
    assert "def main" in main
    assert "prim_func" not in main
    assert len(main) < len(whole)


def test_every_href_of_a_compilation_leads_to_its_ir(server, compilation):
    for step in compilation["steps"]:
        answer = server.http.get(step["href"])
        assert answer.status_code == 200
        assert answer.headers["x-step"] == str(step["index"])


def test_a_stage_with_several_steps_gives_its_last_or_the_one_asked_for(server, model_file):
    compilation = server.compile(model_file("mlp"), {"passes": "generic"}).json()
    of_lowering = [step["index"] for step in compilation["steps"] if step["stage"] == "lowering"]
    assert len(of_lowering) == 2
    last = server.http.get("/ir/lowering", params={"id": compilation["id"]})
    first = server.http.get("/ir/lowering", params={"id": compilation["id"], "step": of_lowering[0]})
    assert last.headers["x-step"] == str(of_lowering[1])
    assert "op_pattern" in last.text
    assert "op_pattern" not in first.text


def test_the_difference_from_the_step_before_shows_what_the_pass_did(server, compilation):
    answer = server.http.get("/ir/fusion", params={"id": compilation["id"], "diff": "previous"})
    removed = [line for line in answer.text.splitlines() if line.startswith("-") and "R.matmul" in line]
    added = [
        line
        for line in answer.text.splitlines()
        if line.startswith("+") and "fused_dense_add" in line and " = " in line
    ]
    assert len(removed) == 2
    assert len(added) == 2
    assert not any("nn.relu" in line for line in answer.text.splitlines() if line[0] in "+-")


def test_a_structured_difference_is_paged(server, compilation):
    def ask(**params):
        answer = server.http.get(
            "/ir/fusion",
            params={"id": compilation["id"], "diff": "import", **params},
            headers={"Accept": "application/json"},
        )
        return answer.json()

    whole = ask()
    assert whole["same_model"]
    assert not whole["identical"]
    assert whole["functions"]["added"] == ["fused_dense_add0", "fused_dense_add1"]
    assert whole["total_changes"] == len(whole["changes"])
    pages, offset = [], 0
    while offset is not None:
        page = ask(offset=offset, limit=3)
        pages += page["changes"]
        offset = page["next_offset"]
    assert pages == whole["changes"]


def test_two_compilations_of_one_model_can_be_compared(server, model_file, compilation):
    other = server.compile(model_file("mlp"), {"passes": ["fuse_dense_add"]}).json()
    params = {"id": compilation["id"], "diff": f"{other['id']}/fusion"}
    assert server.http.get("/ir/fusion", params=params).text.startswith("No difference between")
    answer = server.http.get("/ir/fusion", params=params, headers={"Accept": "application/json"}).json()
    assert answer["identical"]
    assert answer["from"] == {"id": other["id"], "stage": "fusion", "step": 1}


@pytest.mark.parametrize(
    ("path", "params", "slug", "words"),
    [
        ("/ir/fusio", {}, "unknown-stage", "fusion"),
        ("/ir/simplify", {}, "stage-not-reached", "import, fusion, lowering, fuse_tir"),
        ("/ir/fusion", {"step": 0}, "unknown-step", "those are: 1"),
        ("/ir/fusion", {"step": 99}, "unknown-step", "those are: 1"),
        ("/ir/fusion", {"step": "one"}, "invalid-field", "step"),
        ("/ir/fusion", {"function": "man"}, "unknown-function", "main"),
        ("/ir/fusion", {"setp": 1}, "unknown-field", "step"),
        ("/ir/fusion", {"diff": "fusio"}, "unknown-stage", "fusion"),
        ("/ir/fusion", {"diff": "simplify"}, "stage-not-reached", "import"),
        ("/ir/fusion", {"diff": "nobody/fusion"}, "unknown-compilation", "nobody"),
        ("/ir/import", {"diff": "previous"}, "unknown-step", "no step before"),
        ("/ir/fusion", {"diff": "import", "limit": 0}, "invalid-field", "limit"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(server, compilation, path, params, slug, words):
    answer = server.http.get(path, params={"id": compilation["id"], **params})
    assert answer.json()["type"] == f"/problems/{slug}"
    assert 400 <= answer.status_code < 500
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", "text/plain"),
        ("application/json", "application/json"),
        ("text/*", "text/plain"),
        ("application/*;q=0.5, text/plain;q=0.4", "application/json"),
        ("text/html, application/json;q=0.9, */*;q=0.1", "application/json"),
        ("text/plain;q=0, */*", "application/json"),
    ],
)
def test_the_accept_header_chooses_the_representation(accept, expected):
    assert preferred(accept, ("text/plain", "application/json")) == expected


@pytest.mark.parametrize("accept", ["image/png", "text/plain;q=0, application/json;q=0", "text/plain;q=x"])
def test_what_cannot_be_represented_is_refused(accept):
    with pytest.raises(NotAcceptable):
        preferred(accept, ("text/plain",))


@pytest.mark.parametrize(
    ("stage", "mark"), [("vm", "call "), ("tir", "T.prim_func"), ("llvm", "define "), ("asm", "ret")]
)
def test_the_results_of_the_build_are_stages_too(server, compilation, stage, mark):
    answer = server.http.get(f"/ir/{stage}", params={"id": compilation["id"]})
    assert answer.status_code == 200, answer.text
    assert mark in answer.text


def test_assembly_is_kept_once_it_was_asked_for(server, compilation):
    kernels = {
        stage: {
            entry["name"]
            for entry in server.http.get(f"/ir/{stage}", params={"id": compilation["id"], "format": "json"}).json()[
                "functions"
            ]
        }
        for stage in ("tir", "llvm", "asm")
    }
    assert kernels["tir"] == kernels["llvm"] == kernels["asm"]
    results = server.http.get(f"/compile/{compilation['id']}").json()["results"]
    assert [result["stage"] for result in results] == ["vm", "tir", "llvm", "asm"]
    assert all(server.http.get(result["href"]).status_code == 200 for result in results)


def test_assembly_of_what_failed_is_a_stage_not_reached(server, model_file):
    failed = server.compile(model_file("mlp"), {"passes": [], "target": {"cpu": "no-such-cpu"}}).json()
    answer = server.http.get("/ir/asm", params={"id": failed.get("id", failed.get("compilation"))})
    assert (answer.status_code, answer.json()["type"].rsplit("/", 1)[-1].rsplit(":", 1)[-1]) == (
        404,
        "stage-not-reached",
    )


@pytest.mark.parametrize(
    ("form", "media_type", "mark"),
    [
        ("html", "text/html", "<!doctype html>"),
        ("dot", "text/vnd.graphviz", "digraph"),
        ("model_explorer", "application/vnd.model-explorer+json", '"graphs"'),
        ("text", "text/plain", "I.ir_module"),
        ("json", "application/json", '"functions"'),
    ],
)
def test_the_ir_has_five_forms(server, compilation, form, media_type, mark):
    by_query = server.http.get("/ir/fusion", params={"id": compilation["id"], "format": form})
    by_header = server.http.get("/ir/fusion", params={"id": compilation["id"]}, headers={"Accept": media_type})
    assert by_query.headers["content-type"].startswith(media_type)
    assert mark in by_query.text
    assert by_query.text == by_header.text


def test_an_unknown_form_is_refused_by_name(server, compilation):
    answer = server.http.get("/ir/fusion", params={"id": compilation["id"], "format": "pdf"})
    assert 400 <= answer.status_code < 500
    assert "format" in answer.json()["detail"]


def test_two_compilations_of_one_model_differ_in_their_assembly(server, model_file, compilation):
    other = server.compile(model_file("mlp"), {"passes": "generic"}).json()
    answer = server.http.get("/ir/asm", params={"id": compilation["id"]})
    assert answer.status_code == 200
    assert server.http.get("/ir/asm", params={"id": other["id"]}).status_code == 200
    difference = server.http.get(
        "/ir/asm", params={"id": compilation["id"], "diff": f"{other['id']}/asm", "format": "json", "limit": 5}
    ).json()
    assert difference["same_model"] is True
    assert difference["identical"] is False


def test_a_step_expands_into_the_passes_inside_of_it(server, model_file):
    document = server.compile(
        model_file("mlp"), {"passes": ["decompose_ops_for_inference", "legalize_ops", "fuse_tir"]}
    ).json()
    answer = server.http.get("/ir/lowering", params={"id": document["id"], "expand": "true"})
    assert answer.status_code == 200, answer.text
    inner = answer.json()["inner"]
    assert "LegalizeOps" in [each["name"] for each in inner]
    changed = next(each for each in inner if each["name"] == "LegalizeOps")
    assert changed["changed"]
    assert "T.prim_func" in changed["text"]
    assert all(each["text"] is None for each in inner if not each["changed"])


def test_the_build_expands_too(server, compilation):
    inner = server.http.get("/ir/tir", params={"id": compilation["id"], "expand": "true"}).json()["inner"]
    names = [each["name"] for each in inner]
    assert {"StaticPlanBlockMemory", "tirx.MakePackedAPI"} <= set(names)
    assert any(each["level"] > 0 for each in inner) or len(names) > 20
    assert server.http.get("/ir/tir", params={"id": compilation["id"], "expand": "maybe"}).status_code == 400


def test_the_import_has_nothing_inside(server, compilation):
    assert server.http.get("/ir/import", params={"id": compilation["id"], "expand": "true"}).json()["inner"] == []
