"""JSON that is meant to hurt: depth, NaN, huge numbers, bytes that are no text; wherever the API takes JSON."""

from __future__ import annotations

import pytest

HURTFUL = {
    "deep lists": b'{"model": "x", "inputs": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "unclosed lists": b"[" * 900_000,
    "NaN": b'{"model": NaN}',
    "Infinity": b'{"model": Infinity}',
    "minus Infinity": b'{"model": [-Infinity]}',
    "a number of a million digits": b'{"model": ' + b"9" * 900_000 + b"}",
    "a name twice": b'{"model": "a", "model": "b"}',
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "UTF-16": '{"model": "x"}'.encode("utf-16"),
    "half a surrogate pair": b'{"model": "\\ud800"}',
    "a zero byte": b'{"model": "x\0"}',
    "no object": b"[1]",
    "nothing": b"",
    "two values": b"{}{}",
}


@pytest.mark.parametrize("name", HURTFUL)
def test_json_that_hurts_is_refused_wherever_it_is_taken(server, name):
    body = HURTFUL[name]
    for path in ("/infer", "/models/x", "/compile/0123/bisect", "/v2/models/x/infer", "/v2/repository/index"):
        answer = server.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500 or (path, answer.status_code) == ("/v2/repository/index", 200), path
        if answer.status_code != 200:
            document = answer.json()
            assert document.get("detail", document.get("error")).endswith(".")
    answer = server.http.post("/compile", files={"model": b"x", "request": (None, body)})
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed-request"), answer.text
    assert server.http.get("/healthz").status_code == 200
