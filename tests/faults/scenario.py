"""A server under a Watcher, all that a caller does with it in one round, and what must hold after any fault."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from service.journal import Journal
from tests.conftest import ROOT, Server, wait_until
from tests.faults.watcher import Call, Verdict, Watcher, receive_listener

MLP_INPUT = {"input": [[0.5] * 8] * 2}


class NotStarted(Exception):
    """The server ended before it listened."""


@dataclass
class Fault:
    """What becomes of the calls of one site, from its n-th call on (counted from 0), and whether it came to that."""

    site: str
    at: int
    verdict: int
    once: bool = True
    spared: tuple[str, ...] = ()
    count: int = 0
    struck: int = 0

    def judge(self, call: Call) -> Verdict:
        if call.site == self.site:
            self.count += 1
        begun = self.count > self.at if self.struck else call.site == self.site and self.count == self.at + 1
        if not begun or (self.once and self.struck) or not (call.durable or self.once) or call.name in self.spared:
            return None
        self.struck += 1
        return self.verdict


@dataclass
class Facts:
    """What the server has said is done: Compilations that succeeded with what they answer, by id, and the published one.

    `open` are ids of which nothing is known: a request for them had no answer.
    """

    finished: dict[str, tuple[dict[str, Any], list[Any]]] = field(default_factory=dict)
    published: set[str | None] = field(default_factory=lambda: {None})
    open: set[str] = field(default_factory=set)


class WatchedServer(Server):
    """A Server whose processes ask a Watcher."""

    watcher: Watcher

    @classmethod
    def start(cls, data: Path, judge: Callable[[Call], Verdict], **environment: str) -> WatchedServer:
        """Starts a server on `data`. Raises NotStarted."""
        ours, theirs = socket.socketpair()
        temporary = data.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        with theirs, (data.parent / "log").open("a") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.faults.watched", str(theirs.fileno())),
                    *("service", "serve", "--port", "0", "--data", str(data)),
                ],
                cwd=ROOT, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "TMPDIR": str(temporary), **environment},
            )  # fmt: skip
        watcher = Watcher(receive_listener(ours), process.pid, data, judge)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("relaxd listens on "):
                url = line.split()[-1]
                server = cls(url, data, process, httpx.Client(base_url=url, timeout=60))
                server.watcher = watcher
                return server
        process.stdout.close()
        process.wait(10)
        assert watcher.ended.wait(20), "a process of a server that did not start lives on"
        raise NotStarted

    def gone(self) -> None:
        """Waits until the last of its processes has ended."""
        self.process.wait(30)
        self.http.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.watcher.ended.wait(30), "a process of the server lives on"


def another_model(model: bytes, number: int) -> bytes:
    """The same model with another weight."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(model)) as source, zipfile.ZipFile(out, "w") as target:
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith("weights/weight_0"):
                content = struct.pack("<f", number / 1000) + content[4:]
            target.writestr(entry, content)
    return out.getvalue()


def infer(server: Server, compilation: str) -> httpx.Response:
    return server.http.post("/infer", json={"model": compilation, "inputs": MLP_INPUT})


def predict(server: Server, facts: Facts, answers: list[httpx.Response]) -> str:
    """Has the Compilation of the last answer predict, and notes both; its id."""
    document = answers[-1].json()
    key: str = document["id"]
    answers.append(infer(server, key))
    if answers[-1].status_code == 200:
        facts.finished[key] = (document, answers[-1].json()["outputs"])
    return key


def delete(server: Server, facts: Facts, answers: list[httpx.Response], key: str) -> None:
    """Deletes a Compilation, of which nothing is known until that is answered."""
    facts.open.add(key)
    answers.append(server.http.delete(f"/compile/{key}"))
    if answers[-1].status_code == 204:
        del facts.finished[key]


def one_round(server: Server, facts: Facts, model: bytes, kept: str | None) -> list[httpx.Response]:
    """Uploads, compiles, predicts, publishes, asks for the assembly, withdraws, deletes; until a request fails.

    All that is answered is noted in `facts`. `kept` is the Compilation that is not deleted. Raises httpx.TransportError.
    """
    # So that the kernels are made and kept anew.
    for folder in (server.data / "kernels").glob("?" * 32):
        shutil.rmtree(folder)
    answers = [server.compile(model)]
    if answers[-1].status_code not in (200, 201):
        return answers
    key = predict(server, facts, answers)
    if answers[-1].status_code != 200:
        return answers
    before, facts.published = facts.published, {*facts.published, key}
    answers.append(server.http.post("/models/m", json={"compilation": key}))
    if answers[-1].status_code != 200:
        facts.published = before if answers[-1].status_code < 500 else facts.published
        return answers
    facts.published = {key}
    answers.append(server.http.get("/ir/asm", params={"id": key}))
    facts.published.add(None)
    answers.append(server.http.delete("/models/m"))
    if answers[-1].status_code not in (204, 404):
        return answers
    facts.published = {None}
    if key != kept:
        delete(server, facts, answers, key)
    return answers


def examining_round(server: Server, facts: Facts, model: bytes, kept: str | None) -> list[httpx.Response]:
    """Inspects, tunes while it compiles, predicts, profiles, bisects, makes a reproduction, deletes; as `one_round`."""
    answers = [server.http.post("/inspect", files={"model": ("m.pt2", model)})]
    if answers[-1].status_code != 200:
        return answers
    answers.append(server.compile(model, {"tune": {"budget_s": 0.3}}))
    if answers[-1].status_code not in (200, 201):
        return answers
    key = predict(server, facts, answers)
    if answers[-1].status_code != 200:
        return answers
    answers.append(server.http.get(f"/compile/{key}/profile", params={"runs": 3}))
    # It finds nothing: that takes as many workers, and is said in the answer.
    asked = {"symptom": "wrong", "attempts": 3}
    answers.append(server.http.post(f"/compile/{key}/bisect", json=asked, headers={"Prefer": "wait=60"}))
    answers.append(server.http.get(f"/compile/{key}/repro.zip"))
    if key != kept:
        delete(server, facts, answers, key)
    return answers


def is_well(answer: httpx.Response) -> bool:
    """Whether a request of a round ended as it does without a fault: a bisection finds nothing that is wrong."""
    return answer.is_success or (answer.status_code == 409 and answer.json()["type"] == "/problems/no-symptom")


def check(server: Server, facts: Facts) -> None:
    """No finished Compilation is lost, nothing half-written is there, no file was left."""
    for key, (document, outputs) in list(facts.finished.items()):
        answer = server.http.get(f"/compile/{key}")
        if key in facts.open and answer.status_code == 404:
            del facts.finished[key]
            continue
        found = answer.json()
        for name in ("state", "steps", "artifact", "verification", "model"):
            assert found[name] == document[name], (name, found)
        # One that was lost is replaced: that may take a moment.
        wait_until(lambda key=key: infer(server, key).status_code != 503, 60)
        assert infer(server, key).json()["outputs"] == outputs
        for step in document["steps"]:
            assert server.http.get(step["href"]).status_code == 200
    published = server.http.get("/models").json()["models"]
    assert (published[0]["compilation"] if published else None) in facts.published
    for found in server.http.get("/compile?limit=1000").json()["compilations"]:
        assert found["state"] in ("succeeded", "failed", "cancelled"), found
    assert_whole_objects(server.data)
    wait_until(lambda: list((server.data / "scratch").iterdir()) == [], 20)
    wait_until(lambda: list((server.data / "kernels" / "scratch").iterdir()) == [], 20)


def assert_whole_objects(data: Path) -> None:
    """Every stored object has the hash that it is named by."""
    for file in (data / "objects").glob("??/*"):
        with contextlib.suppress(FileNotFoundError):
            assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name


def assert_nothing_left(data: Path) -> None:
    """A server that has stopped left no file that nothing needs."""
    journal = Journal(data / "journal.sqlite3")
    needed = journal.objects()
    journal.close()
    assert {file.name for file in (data / "objects").glob("??/*")} == needed
    assert list((data / "scratch").iterdir()) == []
    # PyTorch makes an empty folder when it is imported.
    assert [path for path in (data.parent / "tmp").rglob("*") if not path.name.startswith("torchinductor_")] == []


def documents(answers: list[httpx.Response]) -> str:
    """What the server said, for the message of a test that fails."""
    return json.dumps([(answer.status_code, answer.text[:400]) for answer in answers], indent=1)
