"""Delta debugging: ever fewer parts of something that still shows a fault, one attempt after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

# Whether the parts at these positions still show it: how many parts what is left has then, or None where it does not.
# Positions are those of what was found last, which takes the place of what was before.
Attempt = Callable[[tuple[int, ...]], Awaitable[int | None]]

# Halves of the whole are tried for as long as one shows it: the last, the first, the middle.
_WINDOWS_AT = (1.0, 0.0, 0.5)
# How much larger the next window around a part is that is thought to be at fault.
_GROWTH = 4


async def narrow(count: int, attempt: Attempt, hint: int | None = None) -> int:
    """How many parts are left when none can be left out any more. `hint` is a part that is thought to be at fault.

    The parts are in an order in which neighbours belong together. Ends early where `attempt` raises.
    """
    search = _Search(count, attempt)
    if hint is not None and 0 <= hint < count:
        await search.around(hint)
    await search.windows()
    await search.without()
    return search.count


class _Search:
    def __init__(self, count: int, attempt: Attempt) -> None:
        self.count = count
        self._attempt = attempt
        self._refused: set[tuple[int, ...]] = set()

    async def _shows(self, positions: tuple[int, ...]) -> bool:
        """Whether these parts alone show it; they are the whole then. Nothing is tried twice."""
        if not positions or len(positions) >= self.count or positions in self._refused:
            return False
        left = await self._attempt(positions)
        if left is None or left >= self.count:
            self._refused.add(positions)
            return False
        self.count = left
        self._refused.clear()
        return True

    async def around(self, hint: int) -> None:
        """The smallest window that ends with the hint, or reaches a little further."""
        size = 1
        while size < self.count:
            for end in (hint + 1, min(hint + 1 + size // 2, self.count)):
                if await self._shows(tuple(range(max(0, end - size), end))):
                    return
            size *= _GROWTH

    async def windows(self) -> None:
        """Halves, for as long as one of them shows it."""
        found = True
        while found and self.count > 1:
            size = (self.count + 1) // 2
            starts = [round((self.count - size) * at) for at in _WINDOWS_AT]
            found = False
            for start in starts:
                found = await self._shows(tuple(range(start, start + size)))
                if found:
                    break

    async def without(self) -> None:
        """Leaves out parts, from large ones to single ones, until no single one can be left out."""
        size = max(self.count // 2, 1)
        while self.count > 1:
            start, found = 0, False
            while start < self.count:
                rest = tuple(at for at in range(self.count) if not start <= at < start + size)
                if await self._shows(rest):
                    found = True
                else:
                    start += size
            if size == 1 and not found:
                return
            size = min(size if found else max(size // 2, 1), max(self.count // 2, 1))
