"""The Open Inference Protocol v2 on a real server: an unmodified client of Triton's, and every rule by hand."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def dynamic(server, model_file):
    """A dense layer over any batch of rows of 4: the Compilation and its one input."""
    document = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
    return document["id"], document["signature"]["inputs"][0]["name"], document["signature"]["outputs"][0]["name"]


@pytest.fixture(scope="module")
def two(server, model_file):
    """A (2, 3) float32 `left` and an int64 `right`."""
    return server.compile(model_file("two_inputs"), {"passes": "generic"}).json()


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as made:
        yield made


def reference(server, model: str, name: str, value: np.ndarray) -> np.ndarray:
    answer = server.http.post("/infer", json={"model": model, "inputs": {name: value.tolist()}}).json()
    return np.array(next(iter(answer["outputs"].values())), np.float32)


def tensor(name: str, value: np.ndarray, *, binary: bool = True, datatype: str = "FP32") -> triton.InferInput:
    made = triton.InferInput(name, list(value.shape), datatype)
    made.set_data_from_numpy(value, binary_data=binary)
    return made


def test_tritonclient_sees_the_server_and_the_model(client, dynamic):
    model, name, _output = dynamic
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(model)
    assert not client.is_model_ready("nonsense")
    assert client.get_server_metadata()["name"] == "relaxd"
    metadata = client.get_model_metadata(model)
    assert metadata["inputs"] == [{"name": name, "datatype": "FP32", "shape": [-1, 4]}]
    assert metadata["versions"] == ["1"]
    assert client.get_model_metadata(model, "1")["name"] == model
    assert client.get_model_config(model)["input"][0]["data_type"] == "TYPE_FP32"
    with pytest.raises(InferenceServerException, match="no version"):
        client.get_model_metadata(model, "7")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("asked", [None, True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritonclient_gets_the_right_numbers(server, client, dynamic, binary, asked, compression):
    model, name, output = dynamic
    value = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    outputs = None if asked is None else [triton.InferRequestedOutput(output, binary_data=asked)]
    result = client.infer(
        model, [tensor(name, value, binary=binary)], outputs=outputs, request_id="ünïcode",
        request_compression_algorithm=compression, response_compression_algorithm=compression,
    )  # fmt: skip
    np.testing.assert_allclose(result.as_numpy(output), reference(server, model, name, value), rtol=1e-6)
    assert result.get_response()["id"] == "ünïcode"
    assert result.get_response()["model_version"] == "1"


def test_tritonclient_runs_many_at_once(server, dynamic):
    model, name, output = dynamic

    async def run() -> None:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            values = [np.full((rows, 4), rows, np.float32) for rows in range(1, 17)]
            results = await asyncio.gather(*(client.infer(model, [tensor(name, value)]) for value in values))
            for value, result in zip(values, results, strict=True):
                assert result.as_numpy(output).shape[0] == len(value)

    asyncio.run(run())


def test_two_inputs_of_two_datatypes(client, two):
    left, right = np.ones((2, 3), np.float32), np.arange(4, dtype=np.int64)
    names = [spec["name"] for spec in two["signature"]["inputs"]]
    result = client.infer(two["id"], [tensor(names[0], left), tensor(names[1], right, datatype="INT64")])
    assert {each["name"] for each in result.get_response()["outputs"]} == {
        spec["name"] for spec in two["signature"]["outputs"]
    }


def test_loading_unloading_and_statistics(client, dynamic):
    model, name, _output = dynamic
    client.unload_model(model)
    client.load_model(model)
    before = client.get_inference_statistics(model)["model_stats"][0]["inference_stats"]["success"]["count"]
    client.infer(model, [tensor(name, np.zeros((1, 4), np.float32))])
    with pytest.raises(InferenceServerException):
        client.infer(model, [tensor(name, np.zeros((1, 5), np.float32))])
    after = client.get_inference_statistics(model)["model_stats"][0]["inference_stats"]
    assert after["success"]["count"] == before + 1
    assert after["fail"]["count"] >= 1
    assert any(each["name"] == model for each in client.get_inference_statistics()["model_stats"])
    with pytest.raises(InferenceServerException):
        client.load_model("nonsense")


def post(server, model, body, headers=None):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return server.http.post(f"/v2/models/{model}/infer", content=content, headers=headers or {})


def oip(name, data, shape, **rest):
    return {"inputs": [{"name": name, "shape": shape, "datatype": "FP32", "data": data}], **rest}


def test_a_raw_body_is_the_one_input(server, dynamic):
    model, name, _output = dynamic
    value = np.ones((3, 4), np.float32)
    answer = post(server, model, value.tobytes(), {LENGTH: "0"})
    assert answer.status_code == 200, answer.text
    head = json.loads(answer.content[: int(answer.headers[LENGTH])])
    assert head["outputs"][0]["shape"][0] == 3
    mine = np.frombuffer(answer.content[int(answer.headers[LENGTH]) :], np.float32)
    np.testing.assert_allclose(mine.reshape(3, -1), reference(server, model, name, value), rtol=1e-6)
    assert post(server, model, value.tobytes()[:-3], {LENGTH: "0"}).status_code == 400


def test_flags_of_the_request_and_of_an_output(server, dynamic):
    model, name, output = dynamic
    data = [0.0] * 4
    asked = {"parameters": {"binary_data_output": True}, "outputs": [{"name": output}]}
    assert LENGTH in post(server, model, oip(name, data, [1, 4], **asked)).headers
    asked["outputs"] = [{"name": output, "parameters": {"binary_data": False}}]
    assert LENGTH not in post(server, model, oip(name, data, [1, 4], **asked)).headers


def test_nan_and_infinity_have_one_valid_spelling(server, model_file):
    document = server.compile(model_file("log"), {"passes": [], "special_values": "report"}).json()
    (spec,) = document["signature"]["inputs"]
    body = oip(spec["name"], ["NaN", "Infinity", 1.0], [3])
    answer = post(server, document["id"], body)
    text = answer.text
    assert answer.status_code == 200
    values = json.loads(text, parse_constant=lambda name: pytest.fail(f"a bare {name}"))["outputs"][0]["data"]
    assert values[0] == "NaN"


def test_an_id_is_echoed_and_only_then(server, dynamic):
    model, name, _ = dynamic
    assert "id" not in post(server, model, oip(name, [0.0] * 4, [1, 4])).json()
    assert post(server, model, oip(name, [0.0] * 4, [1, 4], id="")).json()["id"] == ""
    assert post(server, model, oip(name, [0.0] * 4, [1, 4], id="é", model_name="x")).json()["id"] == "é"


ROW = [0.0] * 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": 7}, "id"),
        ({"inputs": []}, "inputs"),
        ({"inputs": {}}, "inputs"),
        ({"more": 1}, "more"),
        ({"parameters": []}, "parameters"),
        ({"parameters": {"binary_data_output": "yes"}}, "binary_data_output"),
        ({"parameters": {"timeout": -1}}, "timeout"),
        ({"outputs": [{"name": "nonsense"}]}, "outputs[0]"),
        ({"outputs": "x"}, "outputs"),
        ({"outputs": [{"name": "OUTPUT"}, {"name": "OUTPUT"}]}, "outputs[1]"),
        ({"outputs": [{"name": "OUTPUT", "parameters": {"classification": 3}}]}, "classification"),
        ({"shape": [-1, 4]}, "shape"),
        ({"shape": [0, 4]}, "shape"),
        ({"shape": [9223372036854775807, 4]}, "shape"),
        ({"shape": [65536, 65536, 65536]}, "shape"),
        ({"shape": [4, 1]}, "shape"),
        ({"shape": "1,4"}, "shape"),
        ({"shape": [1.0, 4]}, "shape"),
        ({"shape": None}, "shape"),
        ({"datatype": "INT64"}, "datatype"),
        ({"datatype": "BYTES"}, "datatype"),
        ({"datatype": None}, "datatype"),
        ({"name": "nonsense"}, "nonsense"),
        ({"name": None}, "inputs[0]"),
        ({"data": ROW[:3]}, ""),
        ({"data": [*ROW, 0.0]}, ""),
        ({"data": [[0.0], [0.0, 0.0, 0.0]]}, "ragged"),
        ({"data": ["a", 0.0, 0.0, 0.0]}, ""),
        ({"data": [True, 0.0, 0.0, 0.0]}, ""),
        ({"data": [1e400, 0.0, 0.0, 0.0]}, ""),
        ({"data": None}, ""),
        ({"data": "DROP"}, "data"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_wrong_is_400_and_named(server, dynamic, change, said):
    model, name, output = dynamic
    change = json.loads(json.dumps(change).replace("OUTPUT", output))
    body = oip(name, ROW, [1, 4])
    for key, value in change.items():
        if key in ("shape", "datatype", "name", "data", "extra"):
            body["inputs"][0][key] = value
        else:
            body[key] = value
    if change.get("data") == "DROP":
        del body["inputs"][0]["data"]
    answer = post(server, model, body)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error"}
    assert said in answer.json()["error"]


def binary_body(name: str, size: int, **rest) -> bytes:
    entry = {"name": name, "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": size}, **rest}
    return json.dumps({"inputs": [entry]}).encode()


@pytest.mark.parametrize("length", ["-1", "abc", "99999", "1.5", "", "٣"])
def test_a_wrong_header_length_is_named(server, dynamic, length):
    head = binary_body(dynamic[1], 16)
    try:
        answer = post(server, dynamic[0], head + bytes(16), {LENGTH: length})
    except (httpx.LocalProtocolError, UnicodeEncodeError):
        return
    assert answer.status_code == 400
    assert LENGTH in answer.json()["error"]


def test_raw_bytes_without_the_header_length_are_refused(server, dynamic):
    head = binary_body(dynamic[1], 16)
    assert post(server, dynamic[0], head + bytes(16)).status_code == 400
    answer = post(server, dynamic[0], head)
    assert answer.status_code == 400
    assert LENGTH in answer.json()["error"]


@pytest.mark.parametrize(
    ("size", "sent", "rest"),
    [
        (16, 15, {}), (16, 17, {}), (12, 12, {}), (-16, 16, {}), ("16", 16, {}), (16.0, 16, {}), (True, 16, {}),
        (16, 16, {"data": ROW}), (16, 16, {"shape": [2, 2]}), (1 << 62, 16, {"shape": [1 << 60]}),
    ],
)  # fmt: skip
def test_raw_bytes_that_do_not_fit_are_refused(server, dynamic, size, sent, rest):
    head = binary_body(dynamic[1], size, **rest)
    answer = post(server, dynamic[0], head + bytes(sent), {LENGTH: str(len(head))})
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    ("encoding", "encode", "status"),
    [
        ("gzip", gzip.compress, 200),
        ("deflate", zlib.compress, 200),
        ("identity", bytes, 200),
        ("br", bytes, 415),
        ("gzip", bytes, 415),
        ("gzip", lambda body: gzip.compress(body)[:-4], 415),
        ("gzip", lambda body: gzip.compress(body) + b"more", 415),
        ("gzip", lambda body: gzip.compress(body + b" " * (80 << 20)), 413),
    ],
)
def test_encodings_of_the_body(server, dynamic, encoding, encode, status):
    body = encode(json.dumps(oip(dynamic[1], ROW, [1, 4])).encode())
    answer = post(server, dynamic[0], body, {"Content-Encoding": encoding})
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"inputs": NaN}', b"\xff", b'{"a": 1, "a": 2}', b"[" * 99999]
)
def test_what_is_no_json_object_is_400(server, dynamic, body):
    answer = post(server, dynamic[0], body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


def test_what_is_not_there_is_404_with_an_error(server, dynamic):
    for path in ("/v2/models/nonsense", "/v2/models/nonsense/ready", "/v2/models/nonsense/stats", "/v2/nonsense"):
        answer = server.http.get(path)
        assert answer.status_code == 404
        assert set(answer.json()) == {"error"}
    assert post(server, "nonsense", oip("x", ROW, [1, 4])).status_code == 404
    assert server.http.post(f"/v2/models/{dynamic[0]}/versions/2/infer", json={}).status_code == 404
    assert server.http.get(f"/v2/models/{dynamic[0]}/infer").status_code == 405


def test_a_model_that_was_not_built_is_not_ready(server, model_file):
    document = server.compile(model_file("fma"), {"passes": [], "until": "import"}).json()
    answer = server.http.get(f"/v2/models/{document['id']}/ready")
    assert (answer.status_code, set(answer.json())) == (400, {"error"})


def test_integers_are_exact_and_held_to_their_range(server, two):
    names = [spec["name"] for spec in two["signature"]["inputs"]]
    left = {"name": names[0], "shape": [2, 3], "datatype": "FP32", "data": [0.0] * 6}

    def ask(values):
        right = {"name": names[1], "shape": [4], "datatype": "INT64", "data": values}
        return post(server, two["id"], {"inputs": [left, right]})

    assert ask([2**53 + 1, 0, 0, 0]).status_code == 200
    for values in ([2**63, 0, 0, 0], [0.5, 0, 0, 0], [1e30, 0, 0, 0]):
        assert ask(values).status_code == 400
    assert post(server, two["id"], {"inputs": [left]}).status_code == 400
    assert post(server, two["id"], {"inputs": [left, left]}).status_code == 400


def counted(*texts: bytes) -> bytes:
    """Strings as the binary extension has them: each after its length."""
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


# The models here take numbers only, so whatever is declared as BYTES is refused, and never read as numbers.
@pytest.mark.parametrize("door", [{}, {"TE": "trailers"}], ids=["fast lane", "route"])
@pytest.mark.parametrize("raw", [
    counted(b"a", b"bc", b"", b"d"),
    counted(b"four"),
    (1 << 31).to_bytes(4, "little") + bytes(12),  # a length that lies
    (5).to_bytes(4, "little") + b"abc",  # one that is longer than what follows
    b"\1\0",  # half a length
    bytes(16),  # what would be right as FP32
    b"",
])  # fmt: skip
def test_strings_as_raw_bytes_are_refused_by_name(server, dynamic, raw, door):
    model, name, _ = dynamic
    entry = {"name": name, "shape": [1, 4], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [entry]}).encode()
    answer = post(server, model, head + raw, {LENGTH: str(len(head)), **door})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert name in answer.json()["error"]
    assert "FP32" in answer.json()["error"]
    # Declared as what the model takes, strings are too many or too few bytes, but for the one that is as long.
    head = json.dumps({"inputs": [{**entry, "datatype": "FP32"}]}).encode()
    assert post(server, model, head + raw, {LENGTH: str(len(head)), **door}).status_code == (
        200 if len(raw) == 16 else 400
    )


@pytest.mark.parametrize("door", [{}, {"TE": "trailers"}], ids=["fast lane", "route"])
@pytest.mark.parametrize("datatype", ["BYTES", "FP32", "STRING", "bytes"])
@pytest.mark.parametrize("data", [["a", "b", "c", "d"], [["a", "b", "c", "d"]], "abcd", ["1.0", "2.0", "3.0", "4.0"]])
def test_strings_as_json_are_refused_by_name(server, dynamic, datatype, data, door):
    model, name, _ = dynamic
    entry = {"name": name, "shape": [1, 4], "datatype": datatype, "data": data}
    answer = post(server, model, {"inputs": [entry]}, door)
    assert answer.status_code == 400
    assert name in answer.json()["error"]
    if datatype != "FP32":
        assert datatype in answer.json()["error"]


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_is_told_that_strings_are_not_taken(client, two, binary):
    left = triton.InferInput("left", [2, 3], "FP32").set_data_from_numpy(np.zeros((2, 3), "float32"))
    right = triton.InferInput("right", [4], "BYTES")
    right.set_data_from_numpy(np.array([b"a", b"b", b"c", b"d"], object), binary_data=binary)
    with pytest.raises(InferenceServerException, match=r"right.*INT64.*BYTES") as caught:
        client.infer(two["id"], [left, right])
    assert caught.value.status() == "400"
