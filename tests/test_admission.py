"""Who may wait and who runs next: limits at, under and over; no caller keeps the others out; nothing leaks."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from service.admission import Admission, Lists
from service.errors import Overloaded
from service.nouns import Limits
from service.serving_errors import QuotaExceeded

LIMITS = dataclasses.replace(
    Limits(),
    concurrent_compilations=2,
    queued_compilations=4,
    caller_concurrent_compilations=2,
    caller_queued_compilations=2,
)


def test_a_caller_may_have_its_quota_and_not_one_more():
    admission = Admission(LIMITS)
    for _ in range(4):
        admission.admit("a")
    with pytest.raises(QuotaExceeded) as raised:
        admission.admit("a")
    assert raised.value.extensions == {"quota": "compilations", "limit": 4, "retry_after_s": 5}
    admission.admit("b")
    admission.leave("a")
    admission.admit("a")
    admission.admit("b")
    with pytest.raises(Overloaded):
        admission.admit("c")


def test_callers_without_a_key_have_the_quota_of_the_server():
    admission = Admission(LIMITS)
    for _ in range(6):
        admission.admit(None)
    with pytest.raises(Overloaded):
        admission.admit(None)


def order_of(callers: list[str | None], limits: Limits = LIMITS) -> list[str | None]:
    """Starts one task for each caller, in order; the order in which they ran."""
    ran: list[str | None] = []

    async def task(admission: Admission, caller: str | None) -> None:
        async with admission.running(caller):
            ran.append(caller)
            await asyncio.sleep(0.005)

    async def scenario() -> None:
        admission = Admission(limits)
        await asyncio.gather(*(task(admission, caller) for caller in callers))

    asyncio.run(scenario())
    return ran


def test_one_who_comes_late_does_not_wait_for_all_of_one_who_sent_many():
    assert order_of(["a"] * 6 + ["b"]).index("b") == 2
    assert order_of(["a"] * 6 + [None]).index(None) == 2


def test_those_of_one_caller_run_in_the_order_in_which_they_came():
    assert order_of(["a", "a", "b", "b"]) == ["a", "b", "a", "b"] or order_of(["a", "a", "b", "b"]) == [
        "a",
        "a",
        "b",
        "b",
    ]


def test_a_caller_never_runs_more_than_its_share_although_places_are_free():
    most = 0

    async def scenario() -> None:
        nonlocal most
        running = 0
        admission = Admission(dataclasses.replace(LIMITS, concurrent_compilations=5))

        async def task() -> None:
            nonlocal running, most
            async with admission.running("a"):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(task() for _ in range(9)))

    asyncio.run(scenario())
    assert most == 2


def test_one_who_gives_up_leaves_no_place_taken():
    async def scenario() -> None:
        admission = Admission(LIMITS)
        hold = asyncio.Event()

        async def task() -> None:
            async with admission.running("a"):
                await hold.wait()

        tasks = [asyncio.create_task(task()) for _ in range(4)]
        await asyncio.sleep(0)
        # One that runs, one that waits; and one whose turn comes in the very moment in which it is cancelled.
        tasks[0].cancel()
        tasks[3].cancel()
        await asyncio.sleep(0)
        tasks[2].cancel()
        hold.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(1), admission.running("a"), admission.running("b"):
            pass

    asyncio.run(scenario())


def test_lists_are_written_up_to_a_number_of_compilations_in_all():
    lists = Lists(dataclasses.replace(Limits(), listed_compilations=10))
    with lists.writing(6):
        with lists.writing(4):
            with pytest.raises(Overloaded) as raised, lists.writing(1):
                pass
            assert raised.value.extensions == {"limit": 10, "retry_after_s": 1}
        with pytest.raises(Overloaded), lists.writing(5):
            pass
        # What was refused has left nothing behind.
        with lists.writing(4):
            pass


def test_one_list_alone_may_be_longer():
    lists = Lists(dataclasses.replace(Limits(), listed_compilations=10))
    with lists.writing(1000), pytest.raises(Overloaded), lists.writing(1):
        pass
    with lists.writing(1000):
        pass
