"""Writes that run to their end, even when the task that waits for them is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def uninterrupted(write: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs a write in a thread to its end, even when the caller is cancelled: what follows must not overtake it."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *args, **kwargs))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
