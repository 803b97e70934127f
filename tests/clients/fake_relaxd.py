"""A server that keeps the HTTP contract in memory, without a compiler: what the clients are tested against in ms."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx

ID = "0123456789abcdef0123456789abcdef"
PROBLEM_JSON = {"content-type": "application/problem+json"}


def step(index: int, stage: str, name: str | None, ops: int, **changes: Any) -> dict[str, Any]:
    """One step in the server's JSON; `ops` operators, all of one name."""
    return {
        "index": index,
        "stage": stage,
        "pass": name,
        "options": {},
        "changed": True,
        "wall_ms": 1.5,
        "cpu_ms": 1.25,
        "ops": {"relax.add": ops},
        "functions": 1,
        "error": None,
        "notes": [],
        "href": f"/ir/{stage}?id={ID}&step={index}",
        **changes,
    }


STEPS = [
    step(0, "import", None, 9),
    step(1, "fusion", "fuse_dense_add", 6, error=2.5e-7),
    step(2, "fuse_tir", "fuse_tir", 6, changed=False),
]

SIGNATURE = {
    "inputs": [{"name": "x", "shape": ["batch", 3], "dtype": "float32"}],
    "outputs": [{"name": "output_0", "shape": ["batch", 3], "dtype": "float32"}],
}


def problem(slug: str, status: int, **extensions: Any) -> dict[str, Any]:
    """A problem document."""
    title = slug.replace("-", " ").capitalize()
    return {"type": f"/problems/{slug}", "title": title, "status": status, "detail": f"The {slug} detail."} | extensions


def problem_response(
    slug: str, status: int, headers: dict[str, str] | None = None, **extensions: Any
) -> httpx.Response:
    """A problem document as the server answers it."""
    body = json.dumps(problem(slug, status, **extensions))
    return httpx.Response(status, headers=PROBLEM_JSON | (headers or {}), content=body)


def compilation(state: str = "succeeded", steps: int = len(STEPS), **changes: Any) -> dict[str, Any]:
    """A Compilation in the server's JSON, with that many of STEPS."""
    return {
        "id": ID,
        "state": state,
        "created_at": "2025-01-01T00:00:00+00:00",
        "started_at": "2025-01-01T00:00:01+00:00",
        "ended_at": None,
        "model": {"sha256": "ab" * 32, "format": "exported_program", "bytes": 5, "filename": "mlp.pt2"},
        "signature": SIGNATURE,
        "recipe": {"name": "course", "passes": [{"name": "fuse_tir", "options": {}}], "target": {"cpu": "native"}},
        "verify": "artifact",
        "steps": STEPS[:steps],
        "timings": [{"phase": "build", "wall_ms": 20.0, "cpu_ms": 30.0}],
        "verification": {
            "passed": True,
            "cases": ["example", "random"],
            "outputs": [
                {"name": "output_0", "dtype": "float32", "shape": [2, 3], "max_abs_error": 1e-7, "max_rel_error": "NaN"}
            ],
        },
        "problem": None,
        **changes,
    }


class FakeRelaxd:
    """Answers requests and remembers them in `requests`.

    `faults` are given (or raised) first, one a request; `failure` at the request numbered `fail_at`; `instead` always,
    by path. `states` are the answers to the POST and then to each GET of the Compilation, the last one for good.
    """

    def __init__(self, *states: dict[str, Any]) -> None:
        self.requests: list[httpx.Request] = []
        self.faults: list[httpx.Response | Exception] = []
        self.states = list(states or [compilation()])
        self.stored = bool(states)
        self.on_infer: Callable[[Any], Any] = echo
        self.created_status = 201
        self.fail_at: int | None = None
        self.failure = problem_response("internal-error", 500)
        self.instead: dict[str, httpx.Response] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return fault
        if len(self.requests) - 1 == self.fail_at:
            return self.failure
        if request.url.path in self.instead:
            return self.instead[request.url.path]
        head = request.url.path.split("/")[1]
        answers = {"compile": self._compile, "ir": self._ir, "infer": self._infer}
        return answers.get(head, self._fixed)(request)

    def sent(self) -> list[str]:
        """Method and path of every request."""
        return [f"{request.method} {request.url.path}" for request in self.requests]

    def _compile(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return self._post(request)
        if request.url.path == "/compile":
            listed = {key: value for key, value in self.states[0].items() if key != "steps"}
            return httpx.Response(200, json={"compilations": [listed]})
        if not self.stored or not request.url.path.endswith(ID):
            return problem_response("unknown-compilation", 404)
        if request.method == "DELETE":
            self.stored = False
            return httpx.Response(204)
        return httpx.Response(200, json=self._next_state())

    def _post(self, request: httpx.Request) -> httpx.Response:
        document = json.loads(parts(request).get("request", b"{}"))
        if "fuse_tirr" in (document.get("passes") or []):
            return problem_response("unknown-pass", 400)
        self.stored = True
        state = self._next_state()
        if state["problem"] is not None:
            failure = state["problem"] | {"compilation": ID, "href": f"/compile/{ID}"}
            return httpx.Response(failure["status"], headers=PROBLEM_JSON, content=json.dumps(failure))
        running = state["state"] in ("queued", "running")
        headers = {"location": f"/compile/{ID}", "retry-after": "1"} if running else {}
        return httpx.Response(202 if running else self.created_status, json=state, headers=headers)

    def _next_state(self) -> dict[str, Any]:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def _ir(self, request: httpx.Request) -> httpx.Response:
        stage = unquote(request.url.raw_path.decode().partition("?")[0].rpartition("/")[2])
        query = request.url.params
        found = [
            entry
            for entry in STEPS
            if entry["stage"] == stage and query.get("step", str(entry["index"])) == str(entry["index"])
        ]
        if not found or query.get("id") != ID:
            return problem_response("stage-not-reached", 404, stages=["import", "fusion", "fuse_tir"])
        text = f"# {stage}\n@T.prim_func\n@R.function"
        if request.headers["accept"] != "application/json":
            return httpx.Response(200, text=text)
        function = {
            "name": "main",
            "kind": "relax",
            "primitive": False,
            "ops": {"relax.add": 1},
            "calls": ["f"],
            "text": text,
        }
        return httpx.Response(
            200, json={"id": ID, "stage": stage, "step": found[-1], "text": text, "functions": [function]}
        )

    def _infer(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=self.on_infer(json.loads(request.content)))

    def _fixed(self, request: httpx.Request) -> httpx.Response:
        spec = {"name": "fuse_tir", "options": {}}
        about = {"stage": "fuse_tir", "summary": "Merges.", "doc": "Merges calls.", "options": {"type": "object"}}
        answers: dict[str, Any] = {
            "/healthz": {"status": "ok"},
            "/passes": {"passes": [{"name": "fuse_tir", **about}]},
            "/recipes": {
                "recipes": [{"name": "course", "doc": "The course.", "passes": [spec]}],
                "default_recipe": "course",
            },
        }
        if request.url.path not in answers:
            return problem_response("not-found", 404)
        return httpx.Response(200, json=answers[request.url.path])


def echo(body: Any) -> Any:
    """The answer to POST /infer of a model that returns its inputs, in the form of the request."""
    if isinstance(body["inputs"], dict):
        return {"model": body["model"], "outputs": body["inputs"]}
    return {"model_name": body["model"], "outputs": body["inputs"]}


def parts(request: httpx.Request) -> dict[str, bytes]:
    """The parts of a multipart request by name."""
    boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
    found = {}
    for part in request.content.split(b"--" + boundary)[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        found[head.partition(b'name="')[2].partition(b'"')[0].decode()] = content.removesuffix(b"\r\n")
    return found
