"""Delta debugging on plain sets: what is left is what is needed, and few attempts are made."""

from __future__ import annotations

import asyncio

import pytest

from service.narrowing import narrow


class Parts:
    """A whole that shows a fault for as long as all `needed` parts are in it."""

    def __init__(self, count: int, needed: set[int]) -> None:
        self.left = list(range(count))
        self.needed = needed
        self.attempts: list[tuple[int, ...]] = []
        self.asked: list[object] = []

    async def attempt(self, positions: tuple[int, ...]) -> int | None:
        kept = [self.left[position] for position in positions]
        self.attempts.append(tuple(kept))
        self.asked.append((tuple(self.left), positions))
        if not self.needed <= set(kept):
            return None
        self.left = kept
        return len(kept)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100, 1000])
@pytest.mark.parametrize("needed", [{0}, {1, 2}, {0, 7}, {3, 50, 99}, {998, 999}])
def test_what_is_left_is_what_is_needed(count, needed):
    needed = {part for part in needed if part < count} or {0}
    parts = Parts(count, needed)
    assert asyncio.run(narrow(count, parts.attempt)) == len(needed)
    assert set(parts.left) == needed
    assert len(parts.attempts) <= 2 + 16 * count.bit_length()


def test_nothing_is_tried_twice():
    parts = Parts(40, {3, 20, 39})
    asyncio.run(narrow(40, parts.attempt))
    assert len(parts.asked) == len(set(parts.asked))


def test_a_good_hint_saves_attempts():
    parts = Parts(1000, {700, 701})
    asyncio.run(narrow(1000, parts.attempt, hint=701))
    assert parts.left == [700, 701]
    assert len(parts.attempts) <= 10


@pytest.mark.parametrize("hint", [-1, 5, 1000])
def test_a_wrong_hint_does_no_harm(hint):
    parts = Parts(100, {90})
    assert asyncio.run(narrow(100, parts.attempt, hint)) == 1


def test_an_end_from_outside_leaves_what_was_found():
    parts = Parts(100, {90})

    async def attempt(positions):
        if len(parts.attempts) == 3:
            raise TimeoutError
        return await parts.attempt(positions)

    with pytest.raises(TimeoutError):
        asyncio.run(narrow(100, attempt))
    assert 90 in parts.left
    assert len(parts.left) < 100
