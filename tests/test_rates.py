"""Token buckets: at the limit, under it and over it, by a clock that the test moves."""

from __future__ import annotations

import dataclasses

import pytest

from service.nouns import Limits
from service.rates import Rates
from service.serving_errors import RateLimited

LIMITS = dataclasses.replace(Limits(), compile_requests_per_s=2.0, read_requests_per_s=0.1, burst_s=5.0)


@pytest.fixture
def world():
    now = [0.0]
    return now, Rates(LIMITS, lambda: now[0])


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
