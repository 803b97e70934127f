"""GET /compile/{id}/events on a real server."""

from __future__ import annotations

import json

import pytest


def read_events(server, key: str, **headers: str) -> list[tuple[str, str | None, dict]]:
    events = []
    with server.http.stream("GET", f"/compile/{key}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        name, number = "", None
        for line in answer.iter_lines():
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                events.append((name, number, json.loads(line[6:])))
                number = None
    return events


def test_each_step_is_told_once_and_the_end_last_while_it_runs(server, model_file):
    passes = ["fuse_dense_add", "dead_code_elimination", "lower_to_tensorir", "fuse_tir"]
    started = server.compile(model_file("mlp"), {"passes": passes}, "respond-async").json()
    events = read_events(server, started["id"])
    assert [name for name, _, _ in events] == ["step"] * 5 + ["ended"]
    assert [number for _, number, _ in events[:-1]] == ["0", "1", "2", "3", "4"]
    assert [data["pass"] for _, _, data in events[:-1]] == [None, *passes]
    assert events[-1][2] == server.http.get(f"/compile/{started['id']}").json()


def test_an_ended_compilation_tells_all_and_resumes_after_the_last_seen(server, model_file):
    key = server.compile(model_file("mlp"), {"passes": "course"}).json()["id"]
    assert len(read_events(server, key)) == 5
    resumed = read_events(server, key, **{"Last-Event-ID": "1"})
    assert [number for _, number, _ in resumed] == ["2", "3", None]


def test_the_end_of_a_cancelled_compilation_is_told(server, model_file):
    key = server.compile(model_file("deep"), {"passes": ["fuse_dense_add"]}, "respond-async").json()["id"]
    server.http.delete(f"/compile/{key}")
    assert read_events(server, key)[-1][2]["state"] == "cancelled"


@pytest.mark.parametrize(
    ("key", "headers", "slug"), [("nobody", {}, "unknown-compilation"), (None, {"Last-Event-ID": "x"}, "invalid-field")]
)
def test_wrong_requests_are_problems(server, model_file, key, headers, slug):
    key = key or server.compile(model_file("mlp")).json()["id"]
    answer = server.http.get(f"/compile/{key}/events", headers=headers)
    assert 400 <= answer.status_code < 500
    assert answer.json()["type"] == f"/problems/{slug}"
