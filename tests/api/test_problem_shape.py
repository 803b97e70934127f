"""Every route, every kind of fault: one shape."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from service.api.problems import install

ROUTES = [
    ("GET", "/nothing"),
    ("GET", "/compile/"),
    ("PUT", "/compile"),
    ("PATCH", "/compile/x"),
    ("POST", "/ir/fusion"),
    ("GET", "/infer"),
    ("DELETE", "/passes"),
    ("GET", "/compile?limit=0"),
    ("GET", "/compile?limit=many"),
    ("GET", "/compile?page=2"),
    ("GET", "/compile/unknown"),
    ("GET", "/compile/unknown?x=1"),
    ("DELETE", "/compile/unknown"),
    ("POST", "/compile"),
    ("POST", "/compile?wait=3"),
    ("GET", "/ir/nope"),
    ("GET", "/ir/fusion?id=unknown"),
    ("GET", "/ir/fusion?step=x"),
    ("POST", "/infer"),
    ("POST", "/infer?model=x"),
    ("GET", "/passes?x=1"),
    ("GET", "/recipes?x=1"),
    ("GET", "/healthz?x=1"),
    ("GET", "/problems/nope"),
    ("GET", "/problems/not-found?x=1"),
    ("GET", "/%00"),
    ("GET", "/compile/../../etc/passwd"),
    ("GET", "/compile/%2e%2e%2fsecret"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_fault_is_a_problem(server, method, path):
    answer = server.http.request(method, path)
    problem = answer.json()
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("/problems/")
    assert problem["title"]
    assert problem["detail"].endswith(".")
    assert problem["instance"].startswith("urn:uuid:")
    assert "Traceback" not in answer.text
    explained = server.http.get(problem["type"])
    assert explained.status_code == 200
    assert problem["title"] in explained.text


def test_a_wrong_method_lists_the_right_ones(server):
    answer = server.http.put("/compile")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].replace(" ", "").split(",")) <= {"GET", "POST", "HEAD"}


def test_every_route_of_the_document_answers(server):
    document = server.http.get("/openapi.json").json()
    paths = set(document["paths"])
    assert {"/compile", "/compile/{id}", "/ir/{stage}", "/infer", "/passes", "/recipes", "/healthz"} <= paths
    for path, operations in document["paths"].items():
        shape = "application/json" if path.startswith("/v2") else "application/problem+json"
        for operation in operations.values():
            assert operation["responses"]["default"]["content"].keys() == {shape}


def test_every_pass_and_recipe_is_described(server):
    passes = server.http.get("/passes").json()["passes"]
    names = {info["name"] for info in passes}
    assert {"fuse_ewise_fma", "fuse_dense_add", "lower_to_tensorir", "fuse_tir", "legalize_ops", "fuse_ops"} <= names
    for info in passes:
        assert info["summary"]
        assert info["doc"]
        assert info["example"]["before"]
        assert info["options"]["type"] == "object"
    recipes = server.http.get("/recipes").json()["recipes"]
    assert {recipe["name"] for recipe in recipes} == {"course", "fast", "generic", "integration", "none"}
    assert [recipe["name"] for recipe in recipes if recipe["default"]] == ["fast"]
    for recipe in recipes:
        assert {spec["name"] for spec in recipe["passes"]} <= names


def test_health_says_what_runs(server):
    health = server.http.get("/healthz").json()
    assert health["status"] == "ok"
    assert health["zygotes"] == {"compile": "ready", "infer": "ready"}


def test_an_unforeseen_error_says_that_the_connection_ends():
    """The framework raises it once more after the answer, and uvicorn closes the connection for that."""
    app = FastAPI()
    install(app)

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("unforeseen")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://relaxd") as client:
            return await client.get("/broken")

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal-error")
    assert answer.headers["connection"] == "close"
