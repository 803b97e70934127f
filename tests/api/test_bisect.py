"""POST /compile/{id}/bisect on a real server, with real workers that really die."""

from __future__ import annotations

import httpx
import pytest

from tests.conftest import wait_until


@pytest.fixture(scope="module")
def crashed(server, model_file) -> str:
    """The id of a Compilation whose worker died: TVM's lowering of a concatenation of thousands overflows the stack."""
    problem = server.compile(model_file("wide_concat"), {"passes": ["legalize_ops"]}).json()
    assert problem["type"] == "/problems/worker-crashed", problem
    assert (problem["pass"], problem["inner_pass"]) == ("legalize_ops", "LegalizeOps")
    return problem["compilation"]


@pytest.fixture(scope="module")
def bisection(server, crashed) -> dict:
    answer = server.http.post(f"/compile/{crashed}/bisect", json={"seconds": 240})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/compile/{crashed}/bisect"

    def ended() -> dict | None:
        shown = server.http.get(answer.headers["location"], headers={"Prefer": "wait=20"}).json()
        return shown if shown["state"] not in ("queued", "running") else None

    return wait_until(ended, 300)


def test_a_crash_is_located_and_reduced(server, crashed, bisection):
    assert bisection["state"] == "succeeded", bisection
    found, reduced = bisection["found"], bisection["reduced"]
    assert (found["kind"], found["signal"]) == ("crash", "SIGSEGV")
    assert (found["step"], found["pass"], found["inner_pass"]) == (1, "legalize_ops", "LegalizeOps")
    assert reduced["nodes"] == 1
    assert reduced["nodes"] < reduced["nodes_before"]
    assert "torch.ops.aten.cat.default(" in reduced["code"]
    assert bisection["attempts"] == len(bisection["tried"])
    # Whatever died, the server lives.
    assert server.http.get("/healthz").json()["status"] == "ok"


def test_the_reduced_model_can_be_downloaded_and_shows_the_same(server, bisection):
    answer = server.http.get(bisection["reduced"]["href"])
    assert answer.status_code == 200
    problem = server.compile(answer.content, {"passes": ["legalize_ops"]}).json()
    assert (problem["type"], problem["pass"]) == ("/problems/worker-crashed", "legalize_ops")
    # With nothing but the concatenation in it, there is only one function that it can be.
    assert (problem["inner_pass"], problem["function"]) == ("LegalizeOps", "main")


def test_a_slow_compilation_is_told_what_the_quicker_one_does(server, model_file):
    slow = server.compile(model_file("wide_dense"), {"passes": "generic"}).json()
    quick = server.compile(model_file("wide_dense"), {"passes": "fast"}).json()
    asked = {"symptom": "slow", "against": quick["id"], "factor": 1.5, "attempts": 2}
    answer = server.http.post(f"/compile/{slow['id']}/bisect", json=asked, headers={"Prefer": "wait=120"})
    assert answer.status_code == 200, answer.text
    found = answer.json()["found"]
    assert found["kind"] == "slow"
    assert found["after_ms"] > 1.5 * found["before_ms"]
    assert "times" in found["message"]


def test_a_bisection_can_be_cancelled_and_forgotten(server, model_file):
    problem = server.compile(model_file("wide_concat"), {"passes": ["legalize_ops", "fold_constant"]}).json()
    path = f"/compile/{problem['compilation']}/bisect"
    assert server.http.post(path).status_code == 202
    wait_until(lambda: server.http.get(path).json()["doing"], 60)
    assert server.http.delete(path).status_code == 204
    assert server.http.get(path).json()["state"] == "cancelled"
    assert server.http.delete(path).status_code == 204
    assert server.http.get(path).status_code == 404
    assert server.http.get(f"{path}/model.pt2").status_code == 404


def scratch_of_bisections(server) -> set:
    return {path for folder in (server.data / "scratch").glob("work-*") for path in folder.iterdir()}


def test_what_found_nothing_keeps_no_file(server, model_file):
    before = scratch_of_bisections(server)
    compilation = server.compile(model_file("mlp"), {"passes": "none"}).json()
    path = f"/compile/{compilation['id']}/bisect"
    asked = {"symptom": "wrong", "attempts": 3}
    answer = server.http.post(path, json=asked, headers={"Prefer": "wait=60"})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/no-symptom")
    assert server.http.get(path).json()["state"] == "failed"
    wait_until(lambda: scratch_of_bisections(server) <= before)


def test_with_its_compilation_a_bisection_is_forgotten(server, model_file):
    before = scratch_of_bisections(server)
    passes = ["legalize_ops", "dead_code_elimination"]
    key = server.compile(model_file("wide_concat"), {"passes": passes}).json()["compilation"]
    path = f"/compile/{key}/bisect"
    assert server.http.post(path, json={"attempts": 4}, headers={"Prefer": "wait=120"}).status_code == 200
    assert server.http.get(f"{path}/model.pt2").status_code == 200
    # The uploaded model is not kept beside the smaller one.
    assert len(scratch_of_bisections(server) - before) == 1
    assert server.http.delete(f"/compile/{key}").status_code == 204
    assert server.http.get(path).status_code == 404
    wait_until(lambda: scratch_of_bisections(server) <= before)


def test_without_a_symptom_there_is_none(server, model_file):
    compilation = server.compile(model_file("mlp"), {"passes": "course"}).json()
    answer = server.http.post(f"/compile/{compilation['id']}/bisect")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/no-symptom")
    unsupported = server.compile(model_file("unsupported")).json()
    answer = server.http.post(f"/compile/{unsupported['compilation']}/bisect")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/no-symptom")
    assert "import-failed" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "slug", "said"),
    [
        (b"{", "malformed-request", "JSON"),
        (b"[]", "malformed-request", "object"),
        (b'{"symptom": "odd"}', "invalid-field", "symptom"),
        (b'{"attempts": 0}', "invalid-field", "attempts"),
        (b'{"atempts": 1}', "unknown-field", "atempts"),
        (b'{"symptom": "slow"}', "invalid-field", "against"),
        (b'{"against": "x"}', "invalid-field", "against"),
        (b'{"symptom": "slow", "against": "nonsense"}', "unknown-compilation", "nonsense"),
        (b'{"symptom": "slow", "against": "SELF"}', "invalid-field", "same passes"),
        (b'{"symptom": "slow", "against": "OTHER"}', "invalid-field", "another model"),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_bad_requests_are_refused_by_field(server, model_file, body, slug, said):
    compilation = server.compile(model_file("mlp"), {"passes": "course"}).json()
    other = server.compile(model_file("fma"), {"passes": []}).json()
    sent = body.replace(b"SELF", compilation["id"].encode()).replace(b"OTHER", other["id"].encode())
    answer: httpx.Response = server.http.post(f"/compile/{compilation['id']}/bisect", content=sent)
    assert answer.json()["type"] == f"/problems/{slug}", answer.text
    assert said in answer.json()["detail"]


def test_what_was_not_asked_for_is_not_there(server, model_file):
    compilation = server.compile(model_file("mlp"), {"passes": "course"}).json()
    assert server.http.get(f"/compile/{compilation['id']}/bisect").status_code == 404
    assert server.http.get("/compile/nonsense/bisect").status_code == 404
    assert server.http.post("/compile/nonsense/bisect").status_code == 404
