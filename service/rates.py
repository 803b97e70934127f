"""How many requests a second a caller may send: a token bucket for each key and scope."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from service.nouns import Limits
from service.serving_errors import RateLimited


class Rates:
    """The buckets of all callers. Each fills at its rate and holds `burst_s` seconds of it, one request at least.

    Methods belong to the event loop's thread.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = {
            "compile": limits.compile_requests_per_s,
            "infer": limits.infer_requests_per_s,
            "read": limits.read_requests_per_s,
            "admin": limits.read_requests_per_s,
        }
        self._burst_s = limits.burst_s
        self._clock = clock
        # Tokens, and when they were counted.
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def take(self, caller: str, scope: str) -> None:
        """Takes one token. Raises RateLimited, with the seconds until there is one again."""
        rate = self._rates[scope]
        room = max(1.0, rate * self._burst_s)
        now = self._clock()
        tokens, counted = self._buckets.get((caller, scope), (room, now))
        tokens = min(room, tokens + (now - counted) * rate)
        if tokens < 1.0:
            self._buckets[caller, scope] = (tokens, now)
            wait = max(1, math.ceil((1.0 - tokens) / rate))
            raise RateLimited(
                f"The key {caller!r} may send {rate:g} requests a second of the scope {scope!r}. Send it again later.",
                scope=scope,
                limit_per_s=rate,
                retry_after_s=wait,
            )
        self._buckets[caller, scope] = (tokens - 1.0, now)
