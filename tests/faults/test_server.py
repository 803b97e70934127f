"""A whole server at whose writes the disk fails, at whose messages a process dies, and that is killed at its writes.

Meanwhile a caller uploads, compiles, predicts, publishes and deletes; or inspects, tunes, profiles and bisects. By default a sample of the points is tried, evenly
spread over all that differ; with ``RELAXD_LONG_TESTS=1`` all, and of each the first time, one in the middle, the last.
"""

from __future__ import annotations

import errno
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.conftest import wait_until
from tests.faults.scenario import (
    Facts,
    Fault,
    NotStarted,
    WatchedServer,
    another_model,
    assert_nothing_left,
    assert_whole_objects,
    check,
    documents,
    examining_round,
    is_well,
    one_round,
)
from tests.faults.watcher import KILL, Call, Verdict

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the watched calls have the numbers of x86-64")

ALL = bool(os.environ.get("RELAXD_LONG_TESTS"))
ERRORS, KILLS, MESSAGES = 10, 4, 12
# What a full disk still does.
NEED_NO_ROOM = ("unlink", "unlinkat", "rmdir", "fsync", "fdatasync", "rename", "chmod", "fchmod", "fchown", "utimensat")
FAILURES = [(errno.EIO, True, ()), (errno.ENOSPC, False, NEED_NO_ROOM), (errno.EROFS, False, ())]
# What a caller is told whose worker is gone.
LOST = tuple(f"/problems/{name}" for name in ("worker-killed", "worker-lost", "internal-error", "build-failed"))


@dataclass
class Subject:
    """A server that has been through two rounds, and the sites of the second one with how often each was come to.

    `writes` change the data folder, `messages` are those that zygotes and workers get and send.
    """

    server: WatchedServer
    round: Callable[..., list[httpx.Response]]
    model: bytes
    facts: Facts
    kept: str
    writes: Counter[str]
    messages: Counter[str]


@pytest.fixture(scope="module", params=[one_round, examining_round], ids=["serving", "examining"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model_file) -> Iterator[Subject]:
    round_ = request.param
    model = model_file("mlp").read_bytes()
    data = tmp_path_factory.mktemp("watched") / "data"
    server = WatchedServer.start(data, lambda _: None)
    facts = Facts()
    kept = server.compile(model).json()["id"]
    first = round_(server, facts, model, kept)
    assert all(is_well(answer) for answer in first), documents(first)
    writes: Counter[str] = Counter()
    messages: Counter[str] = Counter()

    def count(call: Call) -> Verdict:
        writes[call.site] += call.durable
        messages[call.site] += call.is_message
        return None

    server.watcher.judge = count
    assert all(is_well(answer) for answer in round_(server, facts, another_model(model, 1), kept))
    server.watcher.judge = lambda _: None
    yield Subject(server, round_, model, facts, kept, +writes, +messages)
    assert server.stop() == 0
    server.gone()
    assert_nothing_left(data)


def points(sites: Counter[str], most: int) -> list[tuple[str, int]]:
    """Every site and its first call, its middle one and its last; or a sample that is spread evenly over all of them."""
    every = [(site, at) for site, count in sorted(sites.items()) for at in sorted({0, count // 2, count - 1})]
    if ALL:
        return every
    first = [point for point in every if point[1] == 0]
    return first[:: max(1, len(first) // most)][:most]


def test_an_error_at_any_write_costs_one_request_and_nothing_else(subject, record_property):
    server, facts = subject.server, subject.facts
    places = points(subject.writes, ERRORS)
    record_property("places", len(places))
    for number, (site, at) in enumerate(places):
        verdict, once, spared = FAILURES[number % len(FAILURES)]
        if site.partition(": ")[2].split()[0] in spared:
            verdict, once, spared = FAILURES[0]
        fault = Fault(site, at, verdict, once, spared)
        model = another_model(subject.model, 100 + number)
        server.watcher.judge = fault.judge
        answers = subject.round(server, facts, model, subject.kept)
        server.watcher.judge = lambda _: None
        said = f"{errno.errorcode[verdict]} at call {at} of {site}, struck {fault.struck}: {documents(answers)}"
        for answer in answers:
            if not answer.is_success:
                assert answer.headers["content-type"] == "application/problem+json", said
        try:
            again = subject.round(server, facts, model, subject.kept)
            assert all(is_well(answer) for answer in again), documents(again)
            check(server, facts)
        except Exception as error:
            raise AssertionError(said) from error
    assert server.http.get("/healthz").json()["status"] == "ok"


def test_a_process_that_dies_at_any_message_costs_one_request_and_nothing_else(subject, record_property):
    server, facts = subject.server, subject.facts
    places = points(subject.messages, 1000 if subject.round is one_round else MESSAGES)
    record_property("places", len(places))
    for number, (site, at) in enumerate(places):
        fault = Fault(site, at, KILL)
        model = another_model(subject.model, 500 + number)
        server.watcher.judge = fault.judge
        answers = subject.round(server, facts, model, subject.kept)
        server.watcher.judge = lambda _: None
        said = f"killed at call {at} of {site}, struck {fault.struck}: {documents(answers)}"
        assert fault.struck == 1, said
        for answer in answers:
            assert is_well(answer) or answer.json()["type"] in LOST, said
        try:
            wait_until(lambda: server.http.get("/healthz").json()["status"] == "ok", 60)
            again = subject.round(server, facts, model, subject.kept)
            assert all(is_well(answer) for answer in again), documents(again)
            check(server, facts)
        except Exception as error:
            raise AssertionError(said) from error


def test_a_server_killed_at_any_write_loses_nothing_that_it_has_said(subject, record_property, tmp_path):
    data, model, facts = tmp_path / "data", subject.model, Facts()
    kept = None
    sites = Counter({site: count for site, count in subject.writes.items() if site.startswith("web: ")})
    places = points(sites, KILLS)
    record_property("places", len(places))
    for number, (site, at) in enumerate(places):
        fault = Fault(site, at, KILL)
        try:
            server = WatchedServer.start(data, fault.judge if number else lambda _: None)
        except NotStarted:
            assert_whole_objects(data)
            continue
        if number == 0:
            kept = server.compile(model).json()["id"]
            assert all(is_well(answer) for answer in subject.round(server, facts, model, kept))
            server.watcher.judge = fault.judge
        try:
            check(server, facts)
            subject.round(server, facts, another_model(model, 100 + number), kept)
            server.kill()
        except httpx.TransportError:
            assert fault.struck, site
        server.gone()
        assert_whole_objects(data)
    server = WatchedServer.start(data, lambda _: None)
    check(server, facts)
    assert all(is_well(answer) for answer in subject.round(server, facts, model, kept))
    assert server.stop() == 0
    server.gone()
    assert_nothing_left(data)
