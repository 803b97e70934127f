"""/models on a real server: names, versions, going back."""

from __future__ import annotations

import threading

import pytest


@pytest.fixture(scope="module")
def compiled(server, model_file):
    """Two Compilations of one model."""
    return [server.compile(model_file("dynamic"), {"passes": passes}).json() for passes in ("generic", "course")]


def publish(server, name, **body):
    return server.http.post(f"/models/{name}", json=body)


def test_a_name_answers_everywhere_and_goes_back(server, compiled):
    first, second = (each["id"] for each in compiled)
    (spec,) = compiled[0]["signature"]["inputs"]
    assert publish(server, "dense", compilation=first).json()["version"] == 1
    assert publish(server, "dense", compilation=first).json()["version"] == 1
    document = publish(server, "dense", compilation=second).json()
    assert (document["version"], document["compilation"]) == (2, second)
    assert [each["version"] for each in document["versions"]] == [2, 1]

    def infer():
        return server.http.post("/infer", json={"model": "dense", "inputs": {spec["name"]: [[0.0] * 4]}}).json()

    assert infer()["model"] == second
    assert publish(server, "dense", version=1).json()["compilation"] == first
    assert infer()["model"] == first
    assert server.http.get("/models/dense").json()["version"] == 1
    assert "dense" in [each["name"] for each in server.http.get("/models").json()["models"]]
    metadata = server.http.get("/v2/models/dense").json()
    assert metadata["versions"] == ["1", "2"]
    assert server.http.get("/v2/models/dense/versions/2").status_code == 200
    index = server.http.post("/v2/repository/index", json={}).json()
    assert {"name": "dense", "version": "2", "state": "READY", "reason": ""} in index


def test_what_is_published_is_not_deleted(server, compiled):
    first = compiled[0]["id"]
    publish(server, "kept", compilation=first)
    answer = server.http.delete(f"/compile/{first}")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/compilation-published")
    assert "kept" in answer.json()["models"]
    assert server.http.delete("/models/kept").status_code == 204
    assert server.http.get("/models/kept").status_code == 404
    assert server.http.delete("/models/kept").json()["type"] == "/problems/unknown-model"


def test_no_request_fails_while_versions_change(server, compiled):
    (spec,) = compiled[0]["signature"]["inputs"]
    publish(server, "swapped", compilation=compiled[0]["id"])
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            body = {"model": "swapped", "inputs": {spec["name"]: [[1.0] * 4]}}
            statuses.append(server.http.post("/infer", json=body).status_code)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for version in range(10):
        assert publish(server, "swapped", compilation=compiled[version % 2]["id"]).status_code == 200
    over.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}


def test_a_restart_keeps_what_is_published(new_server, model_file):
    one = new_server()
    compiled = one.compile(model_file("dynamic"), {"passes": "generic"}).json()
    publish(one, "stays", compilation=compiled["id"])
    one.stop()
    again = new_server()
    assert again.http.get("/models/stays").json()["compilation"] == compiled["id"]


@pytest.mark.parametrize(
    ("name", "body", "slug"),
    [
        ("a b", {"compilation": "x"}, "invalid-field"),
        ("-a", {"compilation": "x"}, "invalid-field"),
        ("0" * 32, {"compilation": "x"}, "invalid-field"),
        ("a" * 101, {"compilation": "x"}, "invalid-field"),
        ("ok", {"compilation": "nonsense"}, "unknown-compilation"),
        ("ok", {}, "invalid-field"),
        ("ok", {"compilation": "x", "version": 1}, "invalid-field"),
        ("ok", {"version": 1}, "unknown-model"),
        ("ok", {"version": 0}, "invalid-field"),
        ("ok", {"nonsense": 0}, "invalid-field"),
    ],
)
def test_bad_publications_are_refused(server, name, body, slug):
    answer = publish(server, name, **body)
    assert answer.json()["type"] == f"/problems/{slug}", answer.text


def test_what_has_no_library_is_not_published(server, model_file):
    document = server.compile(model_file("fma"), {"passes": [], "until": "import"}).json()
    assert publish(server, "ok", compilation=document["id"]).json()["type"] == "/problems/compilation-not-ready"
