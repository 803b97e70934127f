"""Token buckets: at the limit, under it and over it, by a clock that the test moves."""

from __future__ import annotations

import dataclasses
import multiprocessing

import pytest

from service.nouns import Limits
from service.rates import Rates, SharedBuckets
from service.serving_errors import RateLimited

LIMITS = dataclasses.replace(Limits(), compile_requests_per_s=2.0, read_requests_per_s=0.1, burst_s=5.0)


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def world(request):
    now = [0.0]
    return now, Rates(LIMITS, lambda: now[0], SharedBuckets.create() if request.param else None)


def refused(rates: Rates, caller: str, scope: str) -> int | None:
    """Seconds to wait, or None when it is let through."""
    try:
        rates.take(caller, scope)
    except RateLimited as problem:
        return int(problem.extensions["retry_after_s"])
    return None


def test_a_burst_is_let_through_and_not_one_more(world):
    _, rates = world
    assert [refused(rates, "a", "compile") for _ in range(10)] == [None] * 10
    assert refused(rates, "a", "compile") == 1


def test_after_the_time_that_it_was_told_there_is_one_again_and_only_one(world):
    now, rates = world
    assert refused(rates, "a", "read") is None
    wait = refused(rates, "a", "read")
    assert wait == 10
    now[0] = wait - 0.1
    assert refused(rates, "a", "read") == 1
    now[0] = wait
    assert refused(rates, "a", "read") is None
    assert refused(rates, "a", "read") == 10


def test_at_its_rate_a_caller_is_never_refused(world):
    now, rates = world
    for tick in range(1000):
        now[0] = tick / 2
        assert refused(rates, "a", "compile") is None


def test_callers_and_scopes_have_buckets_of_their_own(world):
    _, rates = world
    while refused(rates, "a", "compile") is None:
        pass
    assert refused(rates, "b", "compile") is None
    assert refused(rates, "a", "infer") is None


def test_a_bucket_does_not_overflow_in_idle_time(world):
    now, rates = world
    now[0] = 1e6
    assert [refused(rates, "a", "compile") for _ in range(11)] == [None] * 10 + [1]


def _let_in(descriptor: int, clock: float, results) -> None:
    rates = Rates(dataclasses.replace(LIMITS, infer_requests_per_s=100.0), lambda: clock, SharedBuckets(descriptor))
    results.put(sum(refused(rates, "a", "infer") is None for _ in range(400)))


def test_processes_that_share_buckets_let_in_as_many_together_as_one_would():
    context = multiprocessing.get_context("fork")
    shared, results = SharedBuckets.create(), context.Queue()
    processes = [context.Process(target=_let_in, args=(shared.descriptor, 7.0, results)) for _ in range(4)]
    for process in processes:
        process.start()
    assert sum(results.get(timeout=60) for _ in processes) == 500
    for process in processes:
        process.join()


def test_more_callers_than_there_is_room_for_forget_those_who_asked_longest_ago():
    now = [0.0]
    rates = Rates(LIMITS, lambda: now[0], SharedBuckets.create())
    for number in range(3 * SharedBuckets.SLOTS):
        now[0] += 1e-6
        assert refused(rates, f"caller {number}", "compile") is None
    for _ in range(9):
        assert refused(rates, f"caller {number}", "compile") is None
    assert refused(rates, f"caller {number}", "compile") == 1
