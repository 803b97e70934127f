"""API keys on a real server: scopes, what a caller sees, and what a server without keys refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest
from relaxd import Client
from relaxd.errors import ProblemError

from service.keys import Keys
from tests.conftest import ROOT


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def guarded(new_server, tmp_path_factory):
    """A server whose data folder has keys, and these by name."""
    server = new_server()
    keys = Keys(server.data)
    scopes = {"alice": ("compile", "infer"), "bob": ("compile", "infer"), "reader": ("read",), "root": ("admin",)}
    made = {name: keys.create(name, each) for name, each in scopes.items()}
    server.stop()
    return new_server(), made


def compile_as(server, key, path, **request):
    with path.open("rb") as file:
        parts = {"model": (path.name, file), "request": (None, json.dumps({"passes": "generic", **request}))}
        return server.http.post("/compile", files=parts, headers=bearer(key))


def test_keys_guard_what_they_should(guarded, model_file):
    server, keys = guarded
    for path in ("/healthz", "/v2/health/live", "/problems/not-authenticated", "/openapi.json", "/passes"):
        assert server.http.get(path).status_code == 200
    for method, path in (
        ("GET", "/compile"),
        ("GET", "/ir/import"),
        ("POST", "/infer"),
        ("GET", "/metrics"),
        ("GET", "/v2"),
        ("POST", "/compile"),
        ("GET", "/nonsense"),
    ):
        answer = server.http.request(method, path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert set(server.http.get("/v2/models/x").json()) == {"error"}
    assert server.http.get("/compile").json()["type"] == "/problems/not-authenticated"
    for wrong in (
        "nonsense",
        keys["alice"][:-1],
        keys["alice"] + "x",
        keys["alice"].replace("alice", "bob"),
        "relaxd.alice.",
    ):
        assert server.http.get("/compile", headers=bearer(wrong)).status_code == 401
    assert server.http.get("/compile", headers={"Authorization": f"Basic {keys['alice']}"}).status_code == 401
    assert server.http.get("/compile", headers=bearer(keys["reader"])).status_code == 200
    refused = compile_as(server, keys["reader"], model_file("mlp"))
    assert (refused.status_code, refused.json()["scope"]) == (403, "compile")
    assert server.http.get("/metrics", headers=bearer(keys["alice"])).status_code == 403
    assert server.http.get("/metrics", headers=bearer(keys["root"])).status_code == 200


def test_a_caller_sees_what_it_submitted_and_what_is_published(guarded, model_file):
    server, keys = guarded
    document = compile_as(server, keys["alice"], model_file("dynamic")).json()
    key = document["id"]
    (spec,) = document["signature"]["inputs"]
    body = {"model": key, "inputs": {spec["name"]: [[0.0] * 4]}}

    def statuses(caller: str) -> list[int]:
        head = bearer(keys[caller])
        return [
            server.http.get(f"/compile/{key}", headers=head).status_code,
            server.http.get("/ir/import", params={"id": key}, headers=head).status_code,
            server.http.get(f"/compile/{key}/provenance", headers=head).status_code,
            server.http.get(f"/compile/{key}/events", headers=head).status_code,
            server.http.get(f"/compile/{key}/repro.zip", headers=head).status_code,
            server.http.post("/infer", json=body, headers=head).status_code,
            server.http.get(f"/v2/models/{key}", headers=head).status_code,
        ]

    assert statuses("alice") == [200] * 7
    assert statuses("bob") == [404] * 7
    assert statuses("root") == [200] * 7
    for caller, count in (("alice", 1), ("bob", 0), ("root", 1)):
        listed = server.http.get("/compile", headers=bearer(keys[caller])).json()["compilations"]
        assert len(listed) == count
    assert server.http.get("/ir/import", headers=bearer(keys["bob"])).status_code == 404
    assert server.http.delete(f"/compile/{key}", headers=bearer(keys["bob"])).status_code == 404
    assert (
        server.http.post("/models/shared", json={"compilation": key}, headers=bearer(keys["alice"])).status_code == 403
    )
    assert (
        server.http.post("/models/shared", json={"compilation": key}, headers=bearer(keys["root"])).status_code == 200
    )
    published = {**body, "model": "shared"}
    assert server.http.post("/infer", json=published, headers=bearer(keys["bob"])).status_code == 200
    assert server.http.get("/v2/models/shared", headers=bearer(keys["bob"])).status_code == 200


def test_two_callers_of_one_compilation_do_not_delete_it_for_each_other(guarded, model_file):
    server, keys = guarded
    one = compile_as(server, keys["alice"], model_file("mlp")).json()["id"]
    two = compile_as(server, keys["bob"], model_file("mlp"))
    assert (two.status_code, two.json()["id"]) == (200, one)
    assert server.http.delete(f"/compile/{one}", headers=bearer(keys["alice"])).status_code == 204
    assert server.http.get(f"/compile/{one}", headers=bearer(keys["alice"])).status_code == 404
    assert server.http.get(f"/compile/{one}", headers=bearer(keys["bob"])).status_code == 200
    assert server.http.delete(f"/compile/{one}", headers=bearer(keys["bob"])).status_code == 204
    assert server.http.get(f"/compile/{one}", headers=bearer(keys["root"])).status_code == 404


def test_a_revoked_or_renewed_key_stops_at_once(guarded):
    server, keys = guarded
    stored = Keys(server.data)
    assert server.http.get("/compile", headers=bearer(keys["bob"])).status_code == 200
    assert stored.revoke("bob")
    assert not stored.revoke("bob")
    assert server.http.get("/compile", headers=bearer(keys["bob"])).status_code == 401
    renewed = stored.create("alice", ("read",))
    assert server.http.get("/compile", headers=bearer(keys["alice"])).status_code == 401
    assert server.http.get("/compile", headers=bearer(renewed)).status_code == 200


def test_the_client_sends_its_key(guarded, monkeypatch):
    server, keys = guarded
    with Client(server.url, api_key=keys["alice"]) as client:
        assert client.compilations() == []
    monkeypatch.setenv("RELAXD_API_KEY", keys["reader"])
    with Client(server.url) as client:
        assert client.compilations() == []
    monkeypatch.delenv("RELAXD_API_KEY")
    with Client(server.url) as client, pytest.raises(ProblemError):
        client.compilations()


def run(*arguments: str, cwd) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_the_command_makes_lists_and_revokes(tmp_path):
    data = str(tmp_path / "data")
    made = run("keys", "create", "ci", "--scopes", "compile,read", "--data", data, cwd=tmp_path)
    key = made.stdout.strip()
    caller = Keys(tmp_path / "data").find(key)
    assert caller is not None
    assert (caller.name, caller.scopes) == ("ci", {"compile", "read"})
    assert key.rpartition(".")[2] not in (tmp_path / "data" / "keys.sqlite3").read_bytes().decode("latin-1")
    assert (tmp_path / "data" / "keys.sqlite3").stat().st_mode & 0o077 == 0
    assert run("keys", "list", "--data", data, cwd=tmp_path).stdout.startswith("ci\tcompile,read\t")
    assert run("keys", "revoke", "ci", "--data", data, cwd=tmp_path).returncode == 0
    assert run("keys", "revoke", "ci", "--data", data, cwd=tmp_path).returncode == 1
    wrong = run("keys", "create", "ci", "--scopes", "fly", "--data", data, cwd=tmp_path)
    assert (wrong.returncode, "fly" in wrong.stderr) == (1, True)
    assert run("keys", "create", "a b", "--data", data, cwd=tmp_path).returncode == 1


def test_an_address_of_others_needs_a_key_or_the_word_insecure(tmp_path):
    refused = run("serve", "--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path / "data"), cwd=tmp_path)
    assert refused.returncode == 1
    assert "keys create" in refused.stderr
    assert "--insecure" in refused.stderr


@pytest.fixture
def limited(new_server):
    """A server where a key may do little."""
    server = new_server()
    keys = Keys(server.data)
    made = {name: keys.create(name, ("compile", "infer")) for name in ("alice", "bob")}
    server.stop()
    settings = {
        "RELAXD_READ_REQUESTS_PER_S": "0.1",
        "RELAXD_BURST_S": "50",
        "RELAXD_CALLER_CONCURRENT_COMPILATIONS": "1",
        "RELAXD_CALLER_QUEUED_COMPILATIONS": "1",
        "RELAXD_CALLER_STORED_BYTES": "7000000",
    }
    return new_server(**settings), made


def test_a_key_has_its_rate_and_its_quotas_and_is_told_when_to_come_again(limited, model_file, tmp_path):
    server, keys = limited
    answers = [server.http.get("/compile", headers=bearer(keys["alice"])) for _ in range(6)]
    assert [answer.status_code for answer in answers[:5]] == [200] * 5
    refused = answers[5]
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/rate-limited")
    assert refused.headers["retry-after"] == str(refused.json()["retry_after_s"])
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert server.http.get("/compile", headers=bearer(keys["bob"])).status_code == 200

    busy = ["fuse_dense_add", "legalize_ops"]
    sent = []
    for count in range(3):
        with model_file("deep").open("rb") as file:
            parts = {
                "model": file,
                "request": (None, json.dumps({"passes": busy + ["annotate_tir_op_pattern"] * count})),
            }
            head = {**bearer(keys["alice"]), "Prefer": "respond-async"}
            sent.append(server.http.post("/compile", files=parts, headers=head))
    assert [answer.status_code for answer in sent] == [202, 202, 429]
    assert sent[2].json()["quota"] == "compilations"
    assert sent[2].headers["retry-after"] == "5"
    # Others are let in, and do not wait for both.
    assert compile_as(server, keys["bob"], model_file("mlp")).status_code == 201
    for answer in sent[:2]:
        key = answer.json()["id"]
        assert server.http.delete(f"/compile/{key}", headers=bearer(keys["alice"])).status_code == 204

    assert compile_as(server, keys["bob"], model_file("mlp")).status_code == 200
    large = tmp_path / "large.pt2"
    large.write_bytes(model_file("deep").read_bytes())
    with zipfile.ZipFile(large, "a") as archive:
        archive.writestr("deep/extra/more", bytes(1 << 20))
    refused = compile_as(server, keys["bob"], large)
    assert (refused.status_code, refused.json()["quota"]) == (429, "stored_bytes")
