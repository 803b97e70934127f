"""Public reports about servers like ours, by their id: what was sent there, and what is right here."""

from __future__ import annotations

import io
import json
import threading

import numpy as np
import pytest

LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def dense(server, model_file):
    """A dense layer over any batch of rows of 4."""
    document = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
    return document["id"], document["signature"]["inputs"][0]["name"], document["signature"]["outputs"][0]["name"]


def post(server, model, body, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return server.http.post(f"/v2/models/{model}/infer", content=content, headers=headers)


def oip(name, shape, data, **rest):
    return {"inputs": [{"name": name, "shape": shape, "datatype": "FP32", "data": data}], **rest}


def strictly(text: str):
    def refuse(constant: str):
        raise AssertionError(f"a bare {constant}")

    return json.loads(text, parse_constant=refuse)


def test_h01_nan_and_infinity_are_strings_in_json_and_bits_in_binary(server, model_file):
    document = server.compile(model_file("log"), {"passes": [], "special_values": "report"}).json()
    name = document["signature"]["inputs"][0]["name"]
    body = oip(name, [3], [-1.0, 0.0, 1.0])
    answer = post(server, document["id"], body)
    assert answer.status_code == 200
    assert strictly(answer.text)["outputs"][0]["data"] == ["NaN", "-Infinity", 0.0]
    raw = post(server, document["id"], {**body, "parameters": {"binary_data_output": True}})
    values = np.frombuffer(raw.content[int(raw.headers[LENGTH]) :], "<f4")
    assert np.isnan(values[0])
    assert values[1] == -np.inf
    plain = server.http.post(
        "/infer", json={"model": document["id"], "inputs": {name: ["-Infinity", "NaN", "Infinity"]}}
    )
    assert list(strictly(plain.text)["outputs"].values()) == [["NaN", "NaN", "Infinity"]]


def test_h03_the_flag_of_the_request_holds_for_listed_outputs(server, dense):
    model, name, output = dense
    asked = {"parameters": {"binary_data_output": True}, "outputs": [{"name": output}]}
    assert LENGTH in post(server, model, oip(name, [1, 4], [0.0] * 4, **asked)).headers
    asked["outputs"] = [{"name": output, "parameters": {"binary_data": False}}]
    assert LENGTH not in post(server, model, oip(name, [1, 4], [0.0] * 4, **asked)).headers


@pytest.mark.parametrize("length", [None, "999999", "-1", "abc"])
def test_h05_a_header_length_that_is_missing_or_wrong_is_named(server, dense, length):
    model, name, _ = dense
    entry = {"name": name, "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    head = json.dumps({"inputs": [entry]}).encode()
    headers = {} if length is None else {LENGTH: length}
    answer = post(server, model, head + bytes(16), **headers)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    answer = post(server, model, head, **headers)
    assert answer.status_code == 400
    assert LENGTH in answer.json()["error"]
    assert post(server, model, oip(name, [1, 4], [0.0] * 4)).status_code == 200


@pytest.mark.parametrize("shape", [[-1, 4], [0, 4], [9223372036854775807, 4], [65536, 65536, 65536]])
@pytest.mark.parametrize("data", [[], [0.0] * 4])
def test_h07_impossible_shapes_are_400(server, dense, shape, data):
    model, name, _ = dense
    assert post(server, model, oip(name, shape, data)).status_code == 400
    size = max(0, int(np.prod([float(each) for each in shape]) * 4) % 2**62)
    entry = {"name": name, "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [entry]}).encode()
    assert post(server, model, head + bytes(16), **{LENGTH: str(len(head))}).status_code == 400


def test_h09_the_product_is_not_the_shape_and_others_are_not_hurt(server, dense):
    model, name, output = dense
    right = np.array(post(server, model, oip(name, [2, 4], [1.0] * 8)).json()["outputs"][0]["data"])
    wrong: list[str] = []

    def ask() -> None:
        for _ in range(30):
            answer = post(server, model, oip(name, [2, 4], [1.0] * 8))
            same = answer.status_code == 200 and np.allclose(
                answer.json()["outputs"][0]["data"], right, rtol=1e-5, atol=1e-6
            )
            wrong.extend([] if same else [answer.text])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for shape in [[4, 2], [8, 1], [8], [1, 8], [2, 2, 2]] * 6:
        assert post(server, model, oip(name, shape, [1.0] * 8)).status_code == 400
    for thread in threads:
        thread.join()
    assert not wrong
    assert output


def test_h11_the_id_is_echoed_and_only_where_there_is_one(server, dense):
    model, name, _ = dense
    assert "id" not in post(server, model, oip(name, [1, 4], [0.0] * 4)).json()
    for given in ("", "ünï 日本"):
        assert post(server, model, oip(name, [1, 4], [0.0] * 4, id=given)).json()["id"] == given


def test_h17_health_says_what_the_protocol_says(server, dense):
    assert server.http.get("/v2/health/live").json() == {"live": True}
    assert server.http.get("/v2/health/ready").json() == {"ready": True}
    assert server.http.get(f"/v2/models/{dense[0]}/ready").json()["ready"] is True
    assert server.http.get(f"/v2/models/{dense[0]}").status_code == 200
    for path in ("/v2/models/nothing", "/v2/models/nothing/ready"):
        answer = server.http.get(path)
        assert answer.status_code == 404
        assert set(answer.json()) == {"error"}


def array_file(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_an_array_file_is_an_input(server, dense):
    model, name, output = dense
    value = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    wanted = server.http.post("/infer", json={"model": model, "inputs": {name: value.tolist()}}).json()
    for given in (value, np.asfortranarray(value), value.astype(">f4")):
        answer = server.http.post("/infer", params={"model": model}, content=array_file(given))
        assert answer.status_code == 200, answer.text
        np.testing.assert_allclose(answer.json()["outputs"][output], wanted["outputs"][output], rtol=1e-5)
        assert answer.json()["model"] == model


@pytest.mark.parametrize(
    "content",
    [
        array_file(np.ones((3, 5), "float32")),
        array_file(np.ones((3, 4), "float64")),
        array_file(np.ones((3, 4), "float32"))[:-1],
        array_file(np.ones((3, 4), "float32")) + b"x",
        array_file(np.ones((3, 4), "float32"))[:20],
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 5000,
        array_file(np.ones((3, 4), "float32")).replace(b"(3, 4)", b"(3,-4)"),
        array_file(np.ones((3, 4), "float32")).replace(b"'<f4'", b"'|O8'"),
    ],
)  # fmt: skip
def test_a_wrong_array_file_is_400(server, dense, content):
    answer = server.http.post("/infer", params={"model": dense[0]}, content=content)
    assert answer.status_code == 400, answer.text
    assert server.http.post("/infer", content=content).json()["type"] == "/problems/invalid-field"


@pytest.mark.parametrize(
    "parameters", [{"config": "{}"}, {"replicas": 0}, {"replicas": "2"}, {"replicas": True}, {"file:1/model": "x"}, 5]
)
def test_loading_takes_replicas_and_nothing_else(server, dense, parameters):
    answer = server.http.post(f"/v2/repository/models/{dense[0]}/load", json={"parameters": parameters})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
