"""relaxd.bisection through both clients: what is sent, progress, ends, and what comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from relaxd import AsyncClient, Bisection, Client, StillRunning, errors
from relaxd import bisection as bisections

from .fake_relaxd import ID, problem, problem_response

FOUND = {
    "kind": "crash", "step": 2, "pass": "fuse_ops", "inner_pass": "FuseOps", "function": "main", "message": "It died.",
    "problem": "worker-crashed", "signal": "SIGSEGV", "node": None, "binding": None, "before_ms": None, "after_ms": None,
}  # fmt: skip


def state(name: str, **changes: Any) -> dict[str, Any]:
    ended = name == "succeeded"
    return {
        "compilation": ID,
        "state": name,
        "symptom": "crash",
        "doing": None if ended else "attempt 3: nodes 1, 2",
        "found": FOUND if ended else None,
        "reduced": {"nodes": 1, "nodes_before": 9, "outputs": 1, "code": "import torch", "href": "/x"}
        if ended
        else None,
        "notes": [],
        "attempts": 3,
        "problem": None,
        **changes,
    }


class Fake:
    """Answers POST and each GET with the next state; other paths by `bodies`."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.states = list(states)
        self.requests: list[httpx.Request] = []
        self.bodies = {"repro.zip": b"PK", "report.html": b"<html>", "model.pt2": b"PK2"}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        name = request.url.path.rpartition("/")[2]
        if name in self.bodies:
            return httpx.Response(200, content=self.bodies[name])
        if request.method == "DELETE":
            return httpx.Response(204)
        document = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return httpx.Response(202 if request.method == "POST" else 200, json=document)


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisections, "_SHORTEST_POLL_S", 0.0)


def connect(fake: Any) -> Client:
    return Client("http://server", transport=httpx.MockTransport(fake))


def test_bisect_waits_for_the_end_and_tells_progress() -> None:
    fake, seen = Fake(state("queued"), state("running"), state("succeeded")), list[Bisection]()
    with connect(fake) as client:
        done = client.bisect(ID, symptom="slow", against="other", factor=2.0, attempts=9, on_progress=seen.append)
    assert [each.state for each in seen] == ["queued", "running", "succeeded"]
    assert seen[1].doing == "attempt 3: nodes 1, 2"
    assert json.loads(fake.requests[0].content) == {"symptom": "slow", "against": "other", "factor": 2.0, "attempts": 9}
    assert done.found is not None
    assert (done.found.pass_name, done.found.inner_pass, done.found.raw["signal"]) == ("fuse_ops", "FuseOps", "SIGSEGV")
    assert done.reduced is not None
    assert (done.reduced.nodes, done.reduced.nodes_before, done.reduced.code) == (1, 9, "import torch")


def test_one_that_fails_raises_its_problem_and_one_that_goes_on_says_so() -> None:
    fake = Fake(state("running"), state("failed", problem=problem("no-symptom", 409)))
    with connect(fake) as client, pytest.raises(errors.NoSymptom):
        client.bisect(ID)
    with connect(Fake(state("running"))) as client, pytest.raises(StillRunning):
        client.bisect(ID, wait_s=0)
    with connect(lambda _: problem_response("no-symptom", 409)) as client, pytest.raises(errors.NoSymptom):
        client.bisect(ID)


def test_the_other_calls() -> None:
    fake = Fake(state("running"))
    with connect(fake) as client:
        assert client.repro(ID) == b"PK"
        assert client.report(ID, profile=True) == "<html>"
        assert client.reduced_model(ID) == b"PK2"
        assert client.bisection(ID, wait_s=3).state == "running"
        client.stop_bisection("a/b")
    sent = [f"{each.method} {each.url.raw_path.decode()}" for each in fake.requests]
    assert sent == [
        f"GET /compile/{ID}/repro.zip",
        f"GET /compile/{ID}/report.html?profile=true",
        f"GET /compile/{ID}/bisect/model.pt2",
        f"GET /compile/{ID}/bisect",
        "DELETE /compile/a%2Fb/bisect",
    ]
    assert fake.requests[3].headers["prefer"] == "wait=3"


def test_the_asynchronous_client_does_the_same() -> None:
    async def go() -> None:
        fake = Fake(state("running"), state("succeeded"))
        async with AsyncClient("http://server", transport=httpx.MockTransport(fake)) as client:
            assert (await client.bisect(ID)).ended
            assert await client.repro(ID) == b"PK"
            assert await client.report(ID) == "<html>"
            assert await client.reduced_model(ID) == b"PK2"
            assert (await client.bisection(ID)).state == "succeeded"
            await client.stop_bisection(ID)

    asyncio.run(go())
