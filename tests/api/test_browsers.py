"""What browsers are told, and what pages of others may not do."""

from __future__ import annotations

import pytest

from service.api.browsers import is_local

PATHS = ["/", "/web/js/main.js", "/healthz", "/compile", "/nothing", "/problems/not-found", "/openapi.json", "/v2/x"]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_strict_headers_and_each_of_them_once(server, path):
    answer = server.http.get(path, headers={"Origin": "http://evil.example"})
    names = [name.lower() for name, _ in answer.headers.raw]
    for name in (b"content-security-policy", b"x-content-type-options", b"x-frame-options", b"referrer-policy",
                 b"cross-origin-resource-policy", b"cross-origin-opener-policy"):  # fmt: skip
        assert names.count(name) == 1, name
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not any(name.startswith(b"access-control-") for name in names)
    assert b"server" not in names


def test_what_is_html_of_strangers_runs_nothing(server, model_file):
    compilation = server.compile(model_file("mlp")).json()["id"]
    for path in (f"/ir/import?id={compilation}&format=html", f"/compile/{compilation}/report.html"):
        policy = server.http.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "script" not in policy


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"},
    ],
)
def test_a_page_of_others_changes_nothing(server, method, headers):
    for path in ("/compile", "/models/x", "/infer"):
        answer = server.http.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/cross-origin")
    assert set(server.http.request(method, "/v2/models/x/infer", headers=headers).json()) == {"error"}


def test_its_own_page_and_programs_may(server):
    own = {"Origin": server.url}
    for headers in ({}, own, {"Sec-Fetch-Site": "same-origin"} | own, {"Sec-Fetch-Site": "none"}):
        assert server.http.post("/infer", headers=headers, content=b"{}").status_code == 400
    # A link to the page from elsewhere works.
    assert server.http.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_no_preflight_is_answered(server):
    asks = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = server.http.options("/compile", headers=asks)
    assert answer.status_code == 405
    assert not any(name.lower().startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "[", "a]b"]
)
def test_a_server_without_keys_answers_only_to_names_of_this_machine(server, host):
    answer = server.http.get("/healthz", headers={"Host": host})
    assert (answer.status_code, answer.json()["type"]) == (421, "/problems/misdirected-request")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.1.2.3:80", "[::1]:8000", "[::1]", "a.localhost"]
)
def test_names_of_this_machine(host):
    assert is_local(host)
