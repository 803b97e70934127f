"""POST /infer on a real server: right numbers, exact types, and every wrong input refused by name."""

from __future__ import annotations

import concurrent.futures
import json
import math

import numpy as np
import pytest


def nested(array) -> str:
    return json.dumps(np.asarray(array).tolist())


@pytest.fixture(scope="module")
def two_inputs(server, model_file):
    return server.compile(model_file("two_inputs")).json()["id"]


@pytest.fixture(scope="module")
def dynamic(server, model_file):
    return server.compile(model_file("dynamic")).json()["id"]


LEFT, RIGHT = [[1, 2, 3], [4, 5, 6]], [1, 2, 3, 2**53 + 1]


def test_inputs_by_name_give_outputs_by_name(server, two_inputs):
    answer = server.http.post("/infer", json={"model": two_inputs, "inputs": {"left": LEFT, "right": RIGHT}})
    assert answer.status_code == 200
    assert answer.json() == {
        "model": two_inputs,
        "outputs": {"output_0": [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]], "output_1": [2, 4, 6, 2**54 + 2]},
    }


def test_tensors_of_the_open_inference_protocol_give_the_same_form_back(server, two_inputs):
    inputs = [
        {"name": "right", "shape": [4], "datatype": "INT64", "data": RIGHT},
        {"name": "left", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]},
    ]
    answer = server.http.post("/infer", json={"model": two_inputs, "inputs": inputs, "id": "mine"}).json()
    assert answer["id"] == "mine"
    assert answer["outputs"] == [
        {"name": "output_0", "datatype": "FP32", "shape": [2, 3], "data": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]},
        {"name": "output_1", "datatype": "INT64", "shape": [4], "data": [2, 4, 6, 2**54 + 2]},
    ]


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_one_artifact_serves_every_batch_size(server, dynamic, batch):
    answer = server.http.post("/infer", json={"model": dynamic, "inputs": {"x": np.ones((batch, 4)).tolist()}})
    outputs = np.array(answer.json()["outputs"]["output_0"])
    assert outputs.shape == (batch, 3)
    assert (outputs == outputs[0]).all()


@pytest.mark.parametrize("batch", [0, 65])
def test_a_size_that_the_model_was_not_exported_for_is_refused(server, dynamic, batch):
    answer = server.http.post(
        "/infer", json={"model": dynamic, "inputs": {"x": np.ones((batch, 4)).tolist() or [[1] * 4][:0]}}
    )
    assert answer.status_code == 400
    assert answer.json()["type"] == "/problems/input-shape"
    if batch:
        assert "from 1 to 64" in answer.json()["detail"]


def test_numbers_that_json_lacks_go_both_ways_as_strings(server, model_file):
    model = server.compile(model_file("log")).json()["id"]
    answer = server.http.post("/infer", json={"model": model, "inputs": {"x": [-1, 0, "Infinity"]}})
    assert answer.status_code == 200
    outputs = json.loads(answer.text, parse_constant=pytest.fail)["outputs"]
    assert outputs == {"output_0": ["NaN", "-Infinity", "Infinity"]}
    oip = [{"name": "x", "shape": [3], "datatype": "FP32", "data": ["NaN", 1, "-Infinity"]}]
    answer = server.http.post("/infer", json={"model": model, "inputs": oip}).json()
    assert answer["outputs"][0]["data"] == ["NaN", 0.0, "NaN"]


def test_many_callers_at_once_get_their_own_answers(server, two_inputs):
    def ask(number: int) -> bool:
        inputs = {"left": np.full((2, 3), number).tolist(), "right": [number] * 4}
        outputs = server.http.post("/infer", json={"model": two_inputs, "inputs": inputs}).json()["outputs"]
        return outputs == {"output_0": [[number + 1.0] * 3] * 2, "output_1": [number * 2] * 4}

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        assert all(threads.map(ask, range(200)))


def test_more_models_than_may_be_loaded_still_all_answer(new_server, model_file):
    server = new_server(RELAXD_LOADED_SESSIONS="1")
    models = [server.compile(model_file(name)).json()["id"] for name in ("log", "fma")]
    bodies = [{"x": [1, 1, 1]}, {"x": [[1] * 4] * 4, "y": [[2] * 4] * 4}]
    for _ in range(3):
        for model, inputs, expected in zip(models, bodies, (0.0, 4.0), strict=True):
            outputs = server.http.post("/infer", json={"model": model, "inputs": inputs}).json()["outputs"]
            assert np.ravel(outputs["output_0"])[0] == expected
    assert server.http.get("/healthz").json()["sessions"] == 1


GOOD = {"left": LEFT, "right": RIGHT}


@pytest.mark.parametrize(
    ("inputs", "slug", "words"),
    [
        ({**GOOD, "middle": [1]}, "unknown-input", "left, right"),
        ({"left": LEFT}, "missing-input", "'right'"),
        ({**GOOD, "left": [[1, 2, 3]]}, "input-shape", "axis 0 must be 2, not 1"),
        ({**GOOD, "left": [1, 2, 3, 4, 5, 6]}, "input-shape", "rank 1"),
        ({**GOOD, "left": [[[1, 2, 3], [4, 5, 6]]]}, "input-shape", "rank 3"),
        ({**GOOD, "left": [[1, 2, 3], [4, 5]]}, "input-data", "ragged"),
        ({**GOOD, "left": 1.5}, "input-shape", "rank 0"),
        ({**GOOD, "left": [[1, 2, 3], [4, 5, None]]}, "input-data", "null"),
        ({**GOOD, "left": [[1, 2, 3], [4, 5, "six"]]}, "input-data", "six"),
        ({**GOOD, "left": {"a": 1}}, "input-data", "only numbers"),
        ({**GOOD, "left": [[1, 2, 3], [4, 5, 1e39]]}, "input-data", "range of float32"),
        ({**GOOD, "right": [1, 2, 3, 4.5]}, "input-data", "int64"),
        ({**GOOD, "right": [1, 2, 3, 2**63]}, "input-data", "int64"),
        ({**GOOD, "right": [1, 2, 3, 2**70]}, "input-data", "int64"),
        ({**GOOD, "right": [1, 2, -1, 2**63]}, "input-data", "int64"),
        ({**GOOD, "right": [True, False, True, True]}, "input-data", "int64"),
        ({**GOOD, "right": ["NaN", 1, 2, 3]}, "input-data", "int64"),
        ([{"name": "left", "shape": [2, 3], "data": [1] * 6}], "missing-input", "right"),
        ([{"name": "left", "shape": [2, 3], "datatype": "FP64", "data": [1] * 6}, {"name": "right", "data": RIGHT}], "input-dtype", "FP32"),
        ([{"name": "left", "shape": [2, 3], "datatype": 7, "data": [1] * 6}, {"name": "right", "data": RIGHT}], "input-dtype", "FP32"),
        ([{"name": "left", "shape": [3, 2], "data": [1] * 6}, {"name": "right", "data": RIGHT}], "input-shape", "axis 0"),
        ([{"name": "left", "shape": [2, 3], "data": [1] * 5}, {"name": "right", "data": RIGHT}], "input-data", "5 numbers"),
        ([{"name": "left", "shape": [-1, 3], "data": [1] * 6}, {"name": "right", "data": RIGHT}], "input-shape", "from 0 up"),
        ([{"name": "left", "shape": [2**62, 2**62], "data": [1] * 6}, {"name": "right", "data": RIGHT}], "input-shape", "from 0 up"),
        ([{"name": "left", "shape": [2.0, 3], "data": [1] * 6}, {"name": "right", "data": RIGHT}], "input-shape", "from 0 up"),
        ([{"name": "left", "data": LEFT}, {"name": "left", "data": LEFT}], "invalid-field", "twice"),
        ([{"name": "left"}], "invalid-field", "data"),
        ([{"nam": "left"}], "invalid-field", "name"),
        ([{"name": "left", "dat": []}], "unknown-field", "dat"),
        ([7], "invalid-field", "inputs"),
        ("x", "invalid-field", "inputs"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_refused_by_name_and_the_model_still_serves(server, two_inputs, inputs, slug, words):
    answer = server.http.post("/infer", json={"model": two_inputs, "inputs": inputs})
    assert answer.status_code == 400
    assert answer.json()["type"] == f"/problems/{slug}"
    assert words in answer.json()["detail"]
    assert server.http.post("/infer", json={"model": two_inputs, "inputs": GOOD}).status_code == 200


@pytest.mark.parametrize(
    ("body", "slug"),
    [
        (b"", "malformed-request"),
        (b"[]", "malformed-request"),
        (b"{", "malformed-request"),
        (b'{"model": "a", "model": "b", "inputs": {}}', "malformed-request"),
        (b'{"model": "a", "inputs": {"x": [NaN]}}', "malformed-request"),
        (b'{"model": "a", "inputs": {"x": [Infinity]}}', "malformed-request"),
        (b"\xff\xfe", "malformed-request"),
        (b'{"a":' * 100_000, "malformed-request"),
        (b'{"model": "a", "inputs": ' + b"[" * 100_000, "malformed-request"),
        (b'{"model": "a", "inputs": {"x": ' + b"9" * 5000 + b"}}", "malformed-request"),
        (b'{"inputs": {}}', "invalid-field"),
        (b'{"model": 3, "inputs": {}}', "invalid-field"),
        (b'{"model": "a"}', "invalid-field"),
        (b'{"model": "a", "inputs": {}, "id": 5}', "invalid-field"),
        (b'{"model": "a", "input": {}}', "unknown-field"),
        (b'{"model": "a", "inputs": {}}', "unknown-model"),
    ],
)
def test_a_malformed_body_is_refused(server, body, slug):
    answer = server.http.post("/infer", content=body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["type"] == f"/problems/{slug}"


def test_a_body_over_the_limit_is_refused_with_and_without_its_length(new_server, two_inputs):
    server = new_server(RELAXD_INFER_BODY_BYTES="1000")
    for content in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):
        answer = server.http.post("/infer", content=content)
        assert answer.status_code == 413
        assert answer.json()["limit_bytes"] == 1000
        assert answer.headers["connection"] == "close"


def test_a_body_of_a_megabyte_is_answered_right(server, dynamic):
    x = np.linspace(-1, 1, 64 * 4).reshape(64, 4)
    text = json.dumps({"model": dynamic, "inputs": {"x": x.tolist()}}) + " " * 1_000_000
    answer = server.http.post("/infer", content=text)
    assert answer.status_code == 200
    assert math.isfinite(answer.json()["outputs"]["output_0"][63][2])
