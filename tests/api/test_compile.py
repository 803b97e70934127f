"""POST, GET and DELETE /compile on a real server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import time

import httpx
import numpy as np
import pytest

from service.api.compile import parse_request, waiting_time
from service.errors import MalformedRequest


def test_a_model_is_compiled_step_by_step_and_its_numbers_are_checked(server, model_file):
    answer = server.compile(model_file("mlp"), {"passes": "course", "verify": "every_step"})
    compilation = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/compile/{compilation['id']}"
    assert compilation["state"] == "succeeded"
    assert [step["pass"] for step in compilation["steps"]] == [None, "fuse_dense_add", "lower_to_tensorir", "fuse_tir"]
    assert [step["stage"] for step in compilation["steps"]] == ["import", "fusion", "lowering", "fuse_tir"]
    assert all(step["error"] < 1e-5 for step in compilation["steps"])
    assert compilation["verification"]["passed"]
    assert compilation["verification"]["cases"][:3] == ["example", "random_0", "random_1"]
    assert {timing["phase"] for timing in compilation["timings"]} == {"import", "pass", "build", "verify"}
    assert compilation["signature"]["inputs"] == [{"name": "input", "shape": [2, 8], "dtype": "float32"}]
    assert server.http.get(answer.headers["location"]).json() == compilation


def test_the_same_request_is_answered_from_the_store(server, model_file):
    first = server.compile(model_file("fma"), {"passes": ["fuse_ewise_fma"]})
    again = server.compile(model_file("fma"), {"passes": [{"name": "fuse_ewise_fma"}], "format": "exported_program"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


def test_twins_in_flight_share_one_run(server, model_file):
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: server.compile(model_file("mlp"), {"passes": ["legalize_ops"]}), range(6)))
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert len({answer.text for answer in answers}) == 1


def test_without_waiting_the_answer_is_202_and_the_end_can_be_waited_for(server, model_file):
    answer = server.compile(model_file("mlp"), {"passes": ["dead_code_elimination"]}, prefer="respond-async")
    assert answer.status_code == 202
    assert answer.json()["state"] in ("queued", "running")
    assert answer.headers["retry-after"] == "1"
    ended = server.http.get(answer.headers["location"], headers={"Prefer": "wait=60"})
    assert ended.json()["state"] == "succeeded"


def test_a_wait_ends_after_the_time_that_was_asked_for(server, model_file):
    model = model_file("deep")
    start = time.monotonic()
    answer = server.compile(model, {"passes": []}, prefer="wait=0.2")
    assert answer.status_code == 202
    assert time.monotonic() - start < 5
    assert server.http.delete(answer.headers["location"]).status_code == 204
    assert server.http.get(answer.headers["location"]).json()["state"] == "cancelled"


def test_a_cancelled_compilation_answers_those_who_wait_and_can_be_run_again(server, model_file):
    model = model_file("deep")
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(server.compile, model, {"passes": ["legalize_ops"]})
        listed = None
        while listed is None:
            running = server.http.get("/compile").json()["compilations"]
            listed = next((found for found in running if found["state"] == "running"), None)
        assert server.http.delete(f"/compile/{listed['id']}").status_code == 204
        answer = waiting.result()
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/cancelled"
    again = server.compile(model_file("deep"), {"passes": ["legalize_ops"]}, prefer="respond-async")
    assert again.json()["id"] == listed["id"]
    assert again.json()["state"] in ("queued", "running")
    server.http.delete(f"/compile/{listed['id']}")


def test_a_deleted_compilation_is_gone(server, model_file):
    compilation = server.compile(model_file("log"), {"passes": ["fold_constant"]}).json()
    server.http.post("/infer", json={"model": compilation["id"], "inputs": {"x": [1, 2, 3]}})
    assert server.http.delete(f"/compile/{compilation['id']}").status_code == 204
    gone = server.http.get(f"/compile/{compilation['id']}")
    assert (gone.status_code, gone.json()["type"]) == (404, "/problems/unknown-compilation")
    assert server.http.delete(f"/compile/{compilation['id']}").status_code == 404
    inferred = server.http.post("/infer", json={"model": compilation["id"], "inputs": {"x": [1, 2, 3]}})
    assert inferred.status_code == 404


def test_deleting_one_of_two_compilations_of_a_model_keeps_the_other_whole(server, model_file):
    one = server.compile(model_file("two_inputs"), {"passes": []}).json()
    other = server.compile(model_file("two_inputs"), {"passes": ["dead_code_elimination"]}).json()
    server.http.delete(f"/compile/{one['id']}")
    body = {"model": other["id"], "inputs": {"left": [[1, 2, 3], [4, 5, 6]], "right": [1, 2, 3, 4]}}
    assert server.http.post("/infer", json=body).json()["outputs"]["output_1"] == [2, 4, 6, 8]
    assert server.http.get("/ir/import", params={"id": other["id"]}).status_code == 200


def test_the_list_has_the_latest_first_and_a_limit(server, model_file):
    last = server.compile(model_file("mlp"), {"passes": []}).json()
    listed = server.http.get("/compile", params={"limit": 1}).json()["compilations"]
    assert [found["id"] for found in listed] == [last["id"]]


def test_wrong_numbers_are_never_served(server, model_file):
    answer = server.compile(model_file("counter"))
    problem = answer.json()
    assert answer.status_code == 422
    assert problem["type"] in ("/problems/verification-failed", "/problems/import-failed")
    stages = [step["stage"] for step in server.http.get(problem["href"]).json()["steps"]]
    body = {"model": problem["compilation"], "inputs": {"x": [1, 2, 3]}}
    inferred = server.http.post("/infer", json=body)
    assert (inferred.status_code, inferred.json()["type"]) == (409, "/problems/compilation-not-ready")
    assert stages == [] or stages[0] == "import"


def test_an_operator_without_conversion_is_named(server, model_file):
    answer = server.compile(model_file("cholesky"))
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/import-failed"
    assert any("cholesky" in name for name in answer.json()["operators"])


def test_example_inputs_of_the_request_are_used_and_change_the_id(server, model_file):
    content = io.BytesIO()
    np.savez(content, input=np.full((2, 8), 0.5, np.float32))
    files = {"model": ("m.pt2", model_file("mlp").read_bytes()), "inputs": ("x.npz", content.getvalue())}
    answer = server.http.post("/compile", files=files)
    assert answer.status_code == 201
    assert answer.json()["id"] != server.compile(model_file("mlp")).json()["id"]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"input": np.zeros((2, 9), np.float32)}, "2, 9"),
        ({"input": np.zeros((2, 8), np.int64)}, "int64"),
        ({"inputs": np.zeros((2, 8), np.float32)}, "inputs"),
    ],
)
def test_example_inputs_that_contradict_the_model_are_refused(server, model_file, arrays, words):
    content = io.BytesIO()
    np.savez(content, **arrays)
    files = {"model": ("m.pt2", model_file("mlp").read_bytes()), "inputs": ("x.npz", content.getvalue())}
    answer = server.http.post("/compile", files=files)
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/signature-mismatch"
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    "inputs",
    [
        [{"name": "x", "shape": [2, 8], "dtype": "float32"}],
        [{"name": "input", "shape": [2, 7], "dtype": "float32"}],
        [{"name": "input", "shape": [2, 8, 1], "dtype": "float32"}],
        [{"name": "input", "shape": [2, 8], "dtype": "float64"}],
        [],
    ],
)
def test_declared_inputs_that_contradict_the_model_are_refused(server, model_file, inputs):
    answer = server.compile(model_file("mlp"), {"inputs": inputs})
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/signature-mismatch"


def test_declared_inputs_that_agree_with_the_model_are_taken(server, model_file):
    inputs = [{"name": "input", "shape": [2, 8], "dtype": "float32"}]
    assert server.compile(model_file("mlp"), {"inputs": inputs}).status_code == 201


def test_twenty_compiles_at_once_all_succeed(server, model_file):
    models = ["mlp", "fma", "log", "two_inputs", "dynamic"]
    requests = [
        (name, {"passes": passes, "target": {"threads": 3}})
        for name in models
        for passes in ("generic", "course", "none", [])
    ]
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda pair: server.compile(model_file(pair[0]), pair[1]), requests))
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert server.http.get("/healthz").json()["compilations"] == {"running": 0, "queued": 0}


def test_a_full_queue_is_said_at_once(new_server, model_file):
    server = new_server(RELAXD_CONCURRENT_COMPILATIONS="1", RELAXD_QUEUED_COMPILATIONS="1")
    answers = [
        server.compile(model_file("deep"), {"passes": ["fold_constant"] * count}, "respond-async") for count in range(3)
    ]
    assert [answer.status_code for answer in answers] == [202, 202, 503]
    assert answers[2].json()["type"] == "/problems/overloaded"
    assert int(answers[2].headers["retry-after"]) >= 1
    assert server.http.get("/healthz").json()["compilations"] == {"running": 1, "queued": 1}


def test_too_many_lists_at_once_are_refused_and_the_others_whole(new_server, model_file):
    server = new_server(RELAXD_LISTED_COMPILATIONS="8")
    for count in range(8):
        assert server.compile(model_file("mlp"), {"passes": ["fold_constant"] * count}).status_code == 201

    async def ask():
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            return await asyncio.gather(*(http.get("/compile") for _ in range(20)))

    answers = [answer for _ in range(5) for answer in asyncio.run(ask())]
    by_status = {status: [each for each in answers if each.status_code == status] for status in (200, 503)}
    assert all(by_status.values())
    assert sum(map(len, by_status.values())) == len(answers)
    assert {len(answer.json()["compilations"]) for answer in by_status[200]} == {8}
    assert {(each.json()["type"], each.headers["retry-after"]) for each in by_status[503]} == {
        ("/problems/overloaded", "1")
    }
    assert server.http.get("/compile").status_code == 200


def test_a_client_that_vanishes_does_not_stop_its_compilation(server, model_file):
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{server.url}/compile",
            files={"model": model_file("mlp").read_bytes(), "request": (None, '{"passes": ["fold_constant"]}')},
            timeout=httpx.Timeout(30, read=0.05),
        )
    listed = server.http.get("/compile", params={"limit": 1}).json()["compilations"][0]
    ended = server.http.get(f"/compile/{listed['id']}", headers={"Prefer": "wait=60"}).json()
    assert ended["state"] == "succeeded"


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, 60.0),
        ("wait=5", 5.0),
        ("wait=0", 0.0),
        ("wait=1000000", 60.0),
        ("respond-async", 0.0),
        ("respond-async, wait=9", 0.0),
        ("handling=lenient", 60.0),
        ("WAIT = 2.5", 2.5),
    ],
)
def test_the_prefer_header_says_how_long_to_wait(prefer, seconds):
    assert waiting_time(prefer, 60.0) == seconds


@pytest.mark.parametrize("prefer", ["wait=soon", "wait=", "wait=-1", "wait=1e9", "wait"])
def test_a_wait_that_is_no_number_is_refused(prefer):
    with pytest.raises(MalformedRequest, match="seconds"):
        waiting_time(prefer, 60.0)


def test_an_empty_request_part_has_all_defaults():
    fields = parse_request(b"{}")
    assert (fields.format, fields.passes, fields.verify, fields.target.cpu) == ("auto", None, "artifact", "native")


PATTERN = {"name": "dense_relu", "chain": ["matmul", "add", {"op": "relu", "dtype": "float32"}]}


def test_a_pattern_of_the_request_names_the_group_and_the_kernel_and_says_what_nearly_matched(server, model_file):
    passes = [{"name": "fuse_pattern", "options": {"patterns": [PATTERN]}}, "generic"]
    compilation = server.compile(model_file("mlp"), {"passes": passes, "verify": "every_step"}).json()
    names = [step["pass"] for step in compilation["steps"]]
    assert names == [
        None,
        "fuse_pattern",
        "legalize_ops",
        "annotate_tir_op_pattern",
        "fold_constant",
        "fuse_ops",
        "fuse_tir",
    ]
    assert [entry["name"] for entry in compilation["recipe"]["passes"]] == names[1:]
    (told,) = compilation["steps"][1]["details"]["patterns"]
    assert [match["group"] for match in told["matches"]] == ["dense_relu"]
    assert [(miss["node"], miss["constraint"]) for miss in told["near_misses"]] == [("[2]", "op")]
    asked = {"id": compilation["id"]}
    assert "def dense_relu(" in server.http.get("/ir/fuse_tir", params=asked).text
    assert compilation["verification"]["passed"]


@pytest.mark.parametrize(
    ("request_", "slug", "field"),
    [
        ({"passes": ["fuse_tir", {"name": "fuse_pattern", "options": {"patterns": [{"name": "a", "nodes": {"mm": {"op": "matmul", "dtype": "f32"}}}]}}]}, "invalid-option", "passes[1].options.patterns[0].nodes.mm.dtype"),
        ({"passes": [{"name": "fuse_pattern", "options": {"pattern": ["dense", "ad"]}}]}, "invalid-option", "passes[0].options.pattern[1]"),
        ({"passes": ["course", "fuse_dense_add"]}, "pass-order", "passes[1]"),
        ({"passes": ["generic"] * 41}, "invalid-field", "passes[40]"),
        ({"pass_context": {"config": {"tirx.add_lower_pass": []}}}, "unknown-field", "pass_context.config.tirx.add_lower_pass"),
        ({"pass_context": {"opt_level": "2"}}, "invalid-field", "pass_context.opt_level"),
        ({"import": {"translator": "corse"}}, "invalid-field", "import.translator"),
        ({"import": {"op": "relax"}}, "unknown-field", "import.op"),
        ({"import": {"ops": "tensorir"}}, "invalid-field", "import.ops"),
        ({"importing": {"translator": "course"}}, "unknown-field", "importing"),
        ({"import": {"translator": "course", "ops": "tensorir"}, "passes": "course"}, "pass-order", "passes[0]"),
    ],
)  # fmt: skip
def test_what_can_never_work_is_refused_at_the_request_by_its_field(server, model_file, request_, slug, field):
    answer = server.compile(model_file("mlp"), request_)
    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["field"]) == (400, f"/problems/{slug}", field)


def test_the_lectures_translator_and_the_pass_context_are_part_of_the_compilation_and_of_its_id(server, model_file):
    model = model_file("mlp", "fx")
    inputs = [{"name": "input", "shape": [2, 8], "dtype": "float32"}]
    requests = [
        {"passes": [], "inputs": inputs},
        {"passes": [], "inputs": inputs, "import": {"translator": "course"}},
        {"passes": [], "inputs": inputs, "import": {"translator": "course", "ops": "tensorir"}},
        {"passes": [], "inputs": inputs, "pass_context": {"opt_level": 1, "disabled": ["tirx.UnrollLoop"]}},
    ]
    answers = [server.compile(model, request).json() for request in requests]
    assert len({answer["id"] for answer in answers}) == 4
    assert [answer["import"] for answer in answers] == [
        {"translator": "relaxd", "ops": "relax"}, {"translator": "course", "ops": "relax"},
        {"translator": "course", "ops": "tensorir"}, {"translator": "relaxd", "ops": "relax"},
    ]  # fmt: skip
    assert answers[3]["recipe"]["context"] == {"opt_level": 1, "disabled": ["tirx.UnrollLoop"], "config": {}}
    assert [answer["steps"][0]["ops"].get("call_tir", 0) for answer in answers] == [0, 0, 5, 0]
    outputs = [server.http.post("/infer", json={"model": answer["id"], "inputs": {"input": [[1.0] * 8] * 2}}).json() for answer in answers]  # fmt: skip
    for output in outputs:
        np.testing.assert_allclose(output["outputs"]["output_0"], outputs[0]["outputs"]["output_0"], rtol=1e-5)
