"""GET /compile/{id}/profile on a real server."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def compilation(server, model_file):
    return server.compile(model_file("mlp"), {"passes": "generic"}).json()


def test_every_kernel_has_its_time_and_its_source(server, compilation):
    answer = server.http.get(f"/compile/{compilation['id']}/profile", params={"runs": 5})
    assert answer.status_code == 200, answer.text
    profile = answer.json()
    kernels = {
        entry["name"]
        for entry in server.http.get("/ir/tir", params={"id": compilation["id"], "format": "json"}).json()["functions"]
    }
    assert {kernel["function"] for kernel in profile["kernels"]} <= kernels
    assert profile["kernels"]
    assert profile["runs"] == 5
    assert all(kernel["min_us"] <= kernel["median_us"] for kernel in profile["kernels"])
    assert all(source["source"] for kernel in profile["kernels"] for source in kernel["sources"])
    assert 0.5 < sum(source["share"] for source in profile["sources"]) <= 1.001 or profile["virtual_machine_us"] > 0
    assert profile["machine"]["flops_per_s"] > 1e9
    assert profile["machine"]["bytes_per_s"] > 1e8


def test_symbols_take_sizes(server, model_file):
    compilation = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
    (symbol,) = compilation["signature"]["symbols"]
    answer = server.http.get(f"/compile/{compilation['id']}/profile", params={"runs": 2, "sizes": f"{symbol}:7"})
    assert answer.status_code == 200, answer.text
    assert 7 in answer.json()["inputs"][0]["shape"]


@pytest.mark.parametrize(
    ("params", "said"), [({"runs": 0}, "runs"), ({"runs": "many"}, "runs"), ({"sizes": "batch:3"}, "sizes")]
)
def test_bad_questions_are_refused_by_field(server, compilation, params, said):
    answer = server.http.get(f"/compile/{compilation['id']}/profile", params=params)
    assert 400 <= answer.status_code < 500
    assert said in answer.json()["detail"]


def test_what_has_no_library_has_no_profile(server, model_file):
    failed = server.compile(model_file("mlp"), {"passes": [], "target": {"cpu": "no-such-cpu"}}).json()
    answer = server.http.get(f"/compile/{failed['compilation']}/profile")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/compilation-not-ready")
    assert server.http.get("/compile/nonsense/profile").status_code == 404
