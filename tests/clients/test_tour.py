"""clients/curl/tour.sh against the fake over a real socket: that it goes all the way, and stops where it must."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from .fake_relaxd import ID, FakeRelaxd, compilation, problem_response

TOUR = Path(__file__).parents[2] / "clients" / "curl" / "tour.sh"


@contextmanager
def served(fake: FakeRelaxd) -> Iterator[str]:
    """The URL of a server that answers as the fake does."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            url = f"http://server{self.path}"
            response = fake(httpx.Request(self.command, url, headers=dict(self.headers), content=body))
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815  the names that http.server looks up

        def log_message(self, *args: object) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "my, model; v1.pt2"
    path.write_bytes(b"PK model")
    return path


def tour(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", TOUR, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def test_the_tour_goes_through_every_call_and_deletes_what_it_made(model: Path) -> None:
    fake = FakeRelaxd()
    with served(fake) as url:
        done = tour(url, model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert fake.sent() == [
        "GET /healthz",
        "GET /passes",
        "GET /recipes",
        "POST /compile",
        "GET /compile",
        "GET /ir/fusion",
        "GET /ir/fuse_tir",
        "POST /infer",
        "POST /compile",
        f"DELETE /compile/{ID}",
        f"GET /compile/{ID}",
    ]


def test_the_prediction_is_nested_as_the_signature_says_with_symbols_as_one(model: Path) -> None:
    fake = FakeRelaxd()
    with served(fake) as url:
        tour(url, model)
    request = next(entry for entry in fake.requests if entry.url.path == "/infer")
    assert json.loads(request.content) == {"model": ID, "inputs": {"x": [[0.5, 0.5, 0.5]]}}


def test_a_compilation_that_the_server_had_before_is_not_deleted(model: Path) -> None:
    fake = FakeRelaxd()
    fake.created_status = 200
    with served(fake) as url:
        done = tour(url, model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DELETE" not in " ".join(fake.sent())


@pytest.mark.parametrize("at", range(11))
def test_the_tour_stops_at_the_first_answer_that_is_not_as_expected(model: Path, at: int) -> None:
    fake = FakeRelaxd()
    with served(fake) as url:
        fake.fail_at = at
        done = tour(url, model)
    assert (done.returncode, len(fake.requests)) == (1, at + 1)
    assert "The tour ends here: expected HTTP" in done.stderr
    assert "/problems/internal-error" in done.stdout


@pytest.mark.parametrize("path", ["/passes", "/recipes", "/compile", "/ir/fusion", "/infer"])
def test_a_right_status_with_a_wrong_body_stops_it_too(model: Path, path: str) -> None:
    fake = FakeRelaxd()
    fake.instead[path] = httpx.Response(200, json={"other": True})
    with served(fake) as url:
        done = tour(url, model)
    assert done.returncode == 1
    assert "the answer does not have" in done.stderr


def test_a_compilation_that_has_not_ended_stops_it(model: Path) -> None:
    fake = FakeRelaxd()
    fake.instead["/compile"] = httpx.Response(201, json=compilation("running"))
    with served(fake) as url:
        done = tour(url, model)
    assert (done.returncode, "succeeded" in done.stderr) == (1, True)


def test_a_problem_of_the_wrong_type_stops_it_where_an_error_is_expected(model: Path) -> None:
    fake = FakeRelaxd()
    fake.fail_at, fake.failure = 8, problem_response("unknown-field", 400)
    with served(fake) as url:
        done = tour(url, model)
    assert (done.returncode, "/problems/unknown-pass" in done.stderr) == (1, True)


def test_without_a_server_it_says_so(model: Path) -> None:
    done = tour("http://127.0.0.1:9", model)
    assert (done.returncode, "is relaxd running there?" in done.stderr) == (1, True)


def test_without_a_model_it_says_how_to_make_one_and_sends_nothing(tmp_path: Path) -> None:
    done = tour("http://127.0.0.1:9", tmp_path / "none.pt2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "torch.export.save" in done.stderr
