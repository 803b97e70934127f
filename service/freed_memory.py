"""Memory that was freed and not given back to the kernel."""

from __future__ import annotations

import asyncio
import ctypes

TRIM_S = 10.0


async def keep_giving_back() -> None:
    """Hands what the C library has freed and kept back to the kernel, from time to time: after a rush it is much."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others give it back themselves
    while trim is not None:
        await asyncio.sleep(TRIM_S)
        await asyncio.to_thread(trim, 0)
