"""Wrong uploads: each its own Problem, no file left behind, no worker harmed."""

from __future__ import annotations

import io
import json
import pickle
import socket
import zipfile

import httpx
import numpy as np
import pytest


def zip_of(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


FOREIGN = {
    "pickle": (pickle.dumps({"weight": 1}), "a pickle file"),
    "state_dict": (zip_of({"m/data.pkl": b"", "m/version": b"3"}), "torch.save"),
    "package": (zip_of({"m/.data/version": b""}), "torch.package"),
    "onnx": (b"\x08\x07\x12\x07pytorch" + bytes(50), "ONNX"),
    "safetensors": ((64).to_bytes(8, "little") + b'{"a":{}}' + bytes(60), "safetensors"),
    "keras": (b"\x89HDF\r\n\x1a\n" + bytes(60), "Keras"),
    "keras_v3": (zip_of({"config.json": b"{}", "metadata.json": b"{}"}), "Keras"),
    "text": (b"# not a model\n", "a text file"),
    "noise": (bytes(range(1, 200)), "of no kind"),
    "zip": (zip_of({"a": b"b"}), "zip archive"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_recognised_and_the_way_to_a_pt2_is_shown(server, name):
    content, kind = FOREIGN[name]
    answer = server.compile(content)
    assert answer.status_code == 415
    assert answer.json()["type"] == "/problems/unsupported-format"
    assert kind in answer.json()["detail"]
    assert "torch.export.export(" in answer.json()["detail"]


def test_the_lines_of_python_come_one_by_one_too(server):
    problem = server.compile(FOREIGN["state_dict"][0]).json()
    assert problem["found"] == "state_dict"
    assert problem["python"][0] == "import torch"
    assert "model.load_state_dict(" in problem["python"][2]
    assert problem["python"][-1] == "torch.export.save(program, 'model.pt2')"


def test_a_torchscript_archive_without_a_model_is_damaged(server):
    files = {"m/code/__torch__.py": b"", "m/constants.pkl": b"", "m/data.pkl": b"", "m/version": b"3"}
    answer = server.compile(zip_of(files))
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/damaged-model")


@pytest.mark.parametrize("wanted", ["torchscript", "fx"])
def test_a_format_that_the_file_has_not_is_refused(server, model_file, wanted):
    answer = server.compile(model_file("mlp"), {"format": wanted})
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-field")
    assert answer.json()["field"] == "format"
    assert answer.json()["found"] == "exported_program"


def test_an_empty_file_is_refused(server):
    answer = server.compile(b"")
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/empty-model")


@pytest.mark.parametrize("keep", [4, 100, 2000, -1, -22])
def test_a_truncated_model_is_damaged(server, model_file, keep):
    answer = server.compile(model_file("mlp").read_bytes()[:keep])
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/damaged-model")


@pytest.mark.parametrize("seed", range(12))
def test_a_corrupted_model_harms_nobody_but_itself(server, model_file, seed):
    content = bytearray(model_file("mlp").read_bytes())
    positions = np.random.default_rng(seed).integers(0, len(content), 40)
    for position in positions:
        content[position] ^= 0x55
    answer = server.compile(bytes(content))
    assert answer.status_code in (400, 415, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert server.compile(model_file("mlp"), {"passes": []}).status_code in (200, 201)


def test_an_archive_that_lies_about_a_weight_is_refused(server, model_file):
    with zipfile.ZipFile(model_file("mlp")) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    weight = next(name for name in files if "data/weights/weight" in name and not name.endswith("json"))
    files[weight] = files[weight][:10]
    answer = server.compile(zip_of(files))
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def post(server, content: bytes, content_type: str = "multipart/form-data; boundary=B") -> httpx.Response:
    return server.http.post("/compile", content=content, headers={"Content-Type": content_type})


def part(name: str, data: bytes, extra: str = "") -> bytes:
    return f'--B\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode() + data + b"\r\n"


@pytest.mark.parametrize(
    ("content", "content_type", "slug"),
    [
        (b"{}", "application/json", "malformed-request"),
        (b"", "multipart/form-data", "malformed-request"),
        (b"", "multipart/form-data; boundary=B", "malformed-request"),
        (b"not a boundary", "multipart/form-data; boundary=B", "malformed-request"),
        (part("model", b"PK"), "multipart/form-data; boundary=B", "malformed-request"),
        (part("modle", b"PK") + b"--B--\r\n", "multipart/form-data; boundary=B", "unknown-field"),
        (part("request", b"{}") + b"--B--\r\n", "multipart/form-data; boundary=B", "missing-part"),
        (part("model", b"PK") * 2 + b"--B--\r\n", "multipart/form-data; boundary=B", "malformed-request"),
        (b"--B\r\nX: y\r\n\r\nPK\r\n--B--\r\n", "multipart/form-data; boundary=B", "malformed-request"),
        (b"--B\r\nX: " + b"y" * 100_000 + b"\r\n\r\n--B--\r\n", "multipart/form-data; boundary=B", "malformed-request"),
    ],
)
def test_a_malformed_multipart_body_is_refused(server, content, content_type, slug):
    answer = post(server, content, content_type)
    assert answer.status_code == 400
    assert answer.json()["type"] == f"/problems/{slug}"


@pytest.mark.parametrize(
    ("request_part", "slug", "words"),
    [
        (b"{", "malformed-request", "line 1, column 2"),
        (b"[1]", "malformed-request", "JSON object"),
        (b'{"a": NaN}', "malformed-request", "NaN"),
        (b"\xff", "malformed-request", "UTF-8"),
        (b'{"pases": []}', "unknown-field", "Did you mean 'passes'"),
        (b'{"target": {"cpus": "x"}}', "unknown-field", "target.cpus"),
        (b'{"inputs": [{"name": "x", "shape": [], "type": "y"}]}', "unknown-field", "inputs[0].type"),
        (b'{"inputs": [{"name": "x", "shape": [-1]}]}', "invalid-field", "inputs[0].shape[0]"),
        (b'{"inputs": [{"name": "x", "shape": [2], "dtype": "complex64"}]}', "invalid-field", "dtype"),
        (b'{"inputs": [{"shape": [2]}]}', "invalid-field", "inputs[0].name"),
        (b'{"verify": "never"}', "invalid-field", "verify"),
        (b'{"format": "onnx"}', "invalid-field", "format"),
        (b'{"target": {"threads": "two"}}', "invalid-field", "target.threads"),
        (b'{"target": {"cpu": "a b; rm"}}', "invalid-field", "target.cpu"),
        (b'{"passes": "cours"}', "unknown-recipe", "course"),
        (b'{"passes": ["fuse_dense_ad"]}', "unknown-pass", "fuse_dense_add"),
        (b'{"passes": [{"name": "fuse_tir", "options": {"x": 1}}]}', "unknown-option", "fuse_tir"),
        (
            b'{"passes": [{"name": "fuse_ops", "options": {"fuse_opt_level": "high"}}]}',
            "invalid-option",
            "fuse_opt_level",
        ),
        (b'{"passes": ["fuse_tir", "legalize_ops"]}', "pass-order", "fuse_tir"),
        (b'{"passes": ["legalize_ops", "fuse_dense_add"]}', "pass-order", "Move 'fuse_dense_add' before it"),
        (b'{"passes": 3}', "invalid-field", "passes"),
    ],
)
def test_a_wrong_request_part_is_refused_by_field(server, model_file, request_part, slug, words):
    files = {"model": ("m.pt2", model_file("mlp").read_bytes()), "request": (None, request_part)}
    answer = server.http.post("/compile", files=files)
    assert answer.status_code == 400
    assert answer.json()["type"] == f"/problems/{slug}"
    assert words in answer.json()["detail"]


def test_an_unknown_cpu_is_refused_by_name(server, model_file):
    answer = server.compile(model_file("mlp"), {"target": {"cpu": "pentium-9000"}})
    assert answer.status_code == 422
    assert "pentium-9000" in answer.json()["detail"]


def test_example_inputs_that_are_no_npz_are_refused(server, model_file):
    files = {"model": ("m.pt2", model_file("mlp").read_bytes()), "inputs": ("x.npz", b"not an archive")}
    answer = server.http.post("/compile", files=files)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-inputs-file")


def test_example_inputs_with_a_pickle_are_refused(server, model_file):
    content = io.BytesIO()
    np.savez(content, input=np.array([{"a": 1}], dtype=object))
    files = {"model": ("m.pt2", model_file("mlp").read_bytes()), "inputs": ("x.npz", content.getvalue())}
    answer = server.http.post("/compile", files=files)
    assert answer.status_code in (400, 422)
    assert answer.json()["type"] == "/problems/invalid-inputs-file"


def test_a_part_over_its_limit_is_refused_while_it_arrives_and_leaves_no_file(new_server):
    server = new_server(RELAXD_UPLOAD_BYTES="100000", RELAXD_REQUEST_BYTES="1000")
    for files in (
        {"model": b"x" * 100_001},
        {"model": b"x" * 10, "request": (None, b" " * 1001)},
        {"model": b"x" * 10_000_000},
    ):
        answer = server.http.post("/compile", files=files)
        assert answer.status_code == 413
        assert answer.json()["limit_bytes"] in (100_000, 1000, 100_000 * 2 + 1000 + 16 * 16384)
        assert answer.headers["connection"] == "close"
    # The folders of workers that other tests have kept are no leftovers.
    assert [each for each in (server.data / "scratch").iterdir() if not each.name.startswith("work-")] == []


def test_an_upload_that_never_ends_is_stopped_at_the_limit(new_server):
    server = new_server(RELAXD_UPLOAD_BYTES="1000000")
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(
            b"POST /compile HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=B\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        head = part("model", b"")[:-2]
        sock.sendall(b"%x\r\n%s\r\n" % (len(head), head))
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        sent = 0
        try:
            while sent < 200:
                sock.sendall(chunk)
                sent += 1
        except OSError:
            pass
        answer = b""
        try:
            while data := sock.recv(65536):
                answer += data
        except OSError:
            pass
    assert sent < 200
    assert b" 413 " in answer.split(b"\r\n")[0] or answer == b""
    # The folders of workers that other tests have kept are no leftovers.
    assert [each for each in (server.data / "scratch").iterdir() if not each.name.startswith("work-")] == []
    assert server.http.get("/healthz").status_code == 200


def test_the_request_may_come_before_or_after_the_model(server, model_file):
    content = model_file("mlp").read_bytes()
    text = json.dumps({"passes": ["fuse_dense_add"]}).encode()
    extra = '; filename="m.pt2"'
    ids = set()
    for body in (part("model", content, extra) + part("request", text), part("request", text) + part("model", content)):
        answer = post(server, body + b"--B--\r\n")
        assert answer.status_code in (200, 201)
        ids.add(answer.json()["id"])
    assert len(ids) == 1
