"""What trials by strangers have found, each with its kind."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import time

import numpy as np
import pytest


def infer(server, compilation: str, **inputs):
    return server.http.post("/infer", json={"model": compilation, "inputs": inputs})


def test_a_size_of_zero_is_never_computed_with_what_memory_held_before(server, model_file):
    compilation = server.compile(model_file("gram")).json()
    assert compilation["signature"]["symbols"].popitem()[1] == {"min": 1, "max": 64}
    assert infer(server, compilation["id"], x=np.full((4, 4), 777.0).tolist()).status_code == 200
    empty = {"model": compilation["id"], "inputs": [{"name": "x", "shape": [0, 4], "data": []}]}
    answer = server.http.post("/infer", json=empty)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/input-shape")


def test_what_is_computed_of_nothing_is_eager_s(server, model_file):
    product = server.compile(model_file("empty_product")).json()
    inputs = [{"name": product["signature"]["inputs"][0]["name"], "shape": [4, 0], "data": []}]
    answer = server.http.post("/infer", json={"model": product["id"], "inputs": inputs}).json()
    assert answer["outputs"][0]["data"] == [1.0] * 4
    joined = server.compile(model_file("empty_concat")).json()
    inputs = [{"name": "x", "shape": [0, 3], "data": []}]
    answer = server.http.post("/infer", json={"model": joined["id"], "inputs": inputs})
    assert answer.json()["outputs"][0]["data"] == [1.0] * 6


def test_an_output_without_dimensions_stays_one(server, model_file):
    compilation = server.compile(model_file("total")).json()
    assert compilation["signature"]["outputs"][0]["shape"] == []
    ones = np.ones((3, 4)).tolist()
    assert infer(server, compilation["id"], x=ones).json()["outputs"] == {"output_0": 12.0}
    oip = [{"name": "x", "shape": [3, 4], "datatype": "FP32", "data": [1.0] * 12}]
    answer = server.http.post("/infer", json={"model": compilation["id"], "inputs": oip}).json()
    assert answer["outputs"][0]["shape"] == []


@pytest.mark.parametrize("recipe", ["generic", "course", "none"])
@pytest.mark.parametrize("name", ["identity", "twice"])
def test_a_model_without_a_kernel_compiles_and_runs(server, model_file, name, recipe):
    compilation = server.compile(model_file(name), {"passes": recipe}).json()
    signature = compilation["signature"]
    x = np.arange(12.0).reshape(3, 4).tolist()
    outputs = infer(server, compilation["id"], **{signature["inputs"][0]["name"]: x}).json()["outputs"]
    assert all(value == x for value in outputs.values())


def test_integer_powers_wrap_around(server, model_file):
    compilation = server.compile(model_file("power_int8")).json()
    answer = infer(server, compilation["id"], x=[0, 1, 6, 7, 64, 68, 100, 127])
    assert answer.json()["outputs"]["output_0"] == [1, 2, 64, -128, 0, 0, 0, 0]
    compilation = server.compile(model_file("power_int16")).json()
    answer = infer(server, compilation["id"], x=[0, -3, 181, 32767])
    # As ATen's powi: 181 ** 181 and 32767 ** 32767 modulo 2 ** 16.
    expected = [1, -27, pow(181, 181, 1 << 16), pow(32767, 32767, 1 << 16)]
    wrapped = [value - (1 << 16) if value >= 1 << 15 else value for value in expected]
    assert answer.json()["outputs"]["output_0"] == wrapped


def test_an_index_out_of_range_and_a_size_that_is_no_multiple_are_the_caller_s(server, model_file):
    rows = server.compile(model_file("rows")).json()["id"]
    answer = infer(server, rows, input=[0, 9])
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/index-out-of-range")
    assert "aten.embedding" in answer.json()["detail"]
    halves = server.compile(model_file("halves")).json()
    assert halves["signature"]["inputs"][0]["shape"][0].startswith("2*")
    assert len(infer(server, halves["id"], x=[[1.0], [2.0], [3.0], [4.0]]).json()["outputs"]["output_0"]) == 2
    for count in (3, 2, 102):
        answer = infer(server, halves["id"], x=[[1.0]] * count)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/input-shape"), count


def test_many_names_in_an_object_do_not_stop_the_server(server, model_file):
    names = ",".join(f'"n{index}":0' for index in range(60_000)) + ',"n59999":0'
    files = {"model": ("m.pt2", model_file("mlp").read_bytes()), "request": (None, "{" + names + "}")}
    start = time.monotonic()
    answer = server.http.post("/compile", files=files)
    assert "twice" in answer.json()["detail"]
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "body",
    [
        r'{"model":"\ud800","inputs":{}}',
        r'{"model":"x","id":"\udfff","inputs":{}}',
        r'{"model":"x","inputs":{"\ud800":[1]}}',
        r'{"model":"x","inputs":{},"\uDBFF":1}',
    ],
)
def test_half_a_surrogate_pair_is_malformed(server, body):
    answer = server.http.post("/infer", content=body)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed-request")
    assert "surrogate" in answer.json()["detail"]


def test_a_whole_surrogate_pair_is_text(server, model_file):
    model = server.compile(model_file("log")).json()["id"]
    body = json.dumps({"model": model, "id": "\U0001f600", "inputs": {"x": [1, 1, 1]}})
    assert "\\ud83d" in body
    assert server.http.post("/infer", content=body).json()["id"] == "\U0001f600"


@pytest.mark.parametrize(
    "data", ["[1, 2, true]", "[1.5, 2, false]", '["NaN", true, 1]', "[1e400, 1, 1]", "[-1e999, 1, 1]"]
)
def test_numbers_are_never_changed_on_the_way_in(server, model_file, data):
    model = server.compile(model_file("log")).json()["id"]
    answer = server.http.post("/infer", content=f'{{"model": "{model}", "inputs": {{"x": {data}}}}}')
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/input-data")


def test_a_large_integer_is_a_number_that_a_float_holds(server, model_file):
    model = server.compile(model_file("log")).json()["id"]
    answer = server.http.post("/infer", content=json.dumps({"model": model, "inputs": {"x": [2**70, 1, 1]}}))
    assert answer.json()["outputs"]["output_0"][0] == pytest.approx(70 * np.log(2))


def test_a_delete_leaves_those_who_use_the_model_their_answers(server, model_file):
    for attempt in range(4):
        model = server.compile(model_file("log"), {"passes": ["dead_code_elimination"] * (attempt + 1)}).json()["id"]
        with concurrent.futures.ThreadPoolExecutor(9) as threads:
            asked = [threads.submit(infer, server, model, x=[1, 1, 1]) for _ in range(8)]
            time.sleep(0.008 * attempt)
            threads.submit(server.http.delete, f"/compile/{model}")
            answers = [answer.result() for answer in asked]
        for answer in answers:
            assert answer.status_code in (200, 404), answer.text


@pytest.mark.parametrize("path", ["/healthz", "/passes", "/recipes", "/compile", "/openapi.json"])
def test_head_is_get_without_a_body(server, path):
    answer = server.http.head(path)
    assert answer.status_code == 200
    assert answer.content == b""


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/compile", {"GET", "HEAD", "POST"}), ("/compile/x", {"GET", "HEAD", "DELETE"}), ("/infer", {"POST"})],
)
def test_allow_names_all_methods_of_a_path(server, path, methods):
    answer = server.http.put(path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == methods


def test_a_caller_that_hangs_up_is_no_fault_of_the_server(new_server):
    server = new_server()
    host, port = server.url.removeprefix("http://").split(":")
    for path in ("/infer", "/compile"):
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n".encode())
            sock.sendall(b"Content-Type: multipart/form-data; boundary=B\r\n\r\n--B")
            time.sleep(0.2)
    assert server.http.get("/healthz").status_code == 200
    server.stop()
    log = (server.data.parent / f"{server.data.name}.log").read_text()
    assert "Traceback" not in log
