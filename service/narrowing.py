"""Delta debugging: ever fewer parts of something that still shows a fault, one attempt after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

# Whether the parts at these positions still show it: how many parts what is left has then, or None where it does not.
# Positions are those of what was found last, which takes the place of what was before.
Attempt = Callable[[tuple[int, ...]], Awaitable[int | None]]

# Halves and quarters of the whole are tried for as long as they show it; then parts are left out, from large to small.
_WINDOWS_AT = (1.0, 0.0, 0.5)


async def narrow(count: int, attempt: Attempt, hint: int | None = None) -> int:
    """How many parts are left when none can be left out any more. `hint` is a part that is thought to be at fault.

    The parts are in an order in which neighbours belong together. Ends early where `attempt` raises.
    """
    if hint is not None and 0 <= hint < count:
        count = await _around(count, attempt, hint)
    count = await _windows(count, attempt)
    return await _without(count, attempt)


async def _around(count: int, attempt: Attempt, hint: int) -> int:
    """The smallest window that ends with the hint, or reaches a little further, and shows it."""
    size = 1
    while size < count:
        for end in dict.fromkeys((hint + 1, min(hint + 1 + size // 2, count))):
            window = tuple(range(max(0, end - size), end))
            left = await attempt(window)
            if left is not None:
                return left
        size *= 4
    return count


async def _windows(count: int, attempt: Attempt) -> int:
    while count > 1:
        size = (count + 1) // 2
        for at in _WINDOWS_AT:
            start = round((count - size) * at)
            left = await attempt(tuple(range(start, start + size)))
            if left is not None and left < count:
                count = left
                break
        else:
            return count
    return count


async def _without(count: int, attempt: Attempt) -> int:
    size = max(count // 2, 1)
    while count > 1:
        start, found = 0, False
        while start < count and count > 1:
            kept = tuple(position for position in range(count) if not start <= position < start + size)
            left = await attempt(kept) if kept else None
            if left is None or left >= count:
                start += size
            else:
                count, found = left, True
        if size == 1 and not found:
            break
        if not found:
            size = max(size // 2, 1)
        size = min(size, max(count // 2, 1))
    return count
