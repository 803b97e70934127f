"""How many requests a second a caller may send: a token bucket for each key and scope, in one or several processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import mmap
import os
import struct
import time
from collections.abc import Callable

from service.nouns import Limits
from service.serving_errors import RateLimited


class Rates:
    """The buckets of all callers. Each fills at its rate and holds `burst_s` seconds of it, one request at least.

    Methods belong to the event loop's thread.
    """

    def __init__(
        self, limits: Limits, clock: Callable[[], float] = time.monotonic, shared: SharedBuckets | None = None
    ) -> None:
        """With `shared` buckets, what all processes that share them let in is within the rates."""
        self._rates = {
            "compile": limits.compile_requests_per_s,
            "infer": limits.infer_requests_per_s,
            "read": limits.read_requests_per_s,
            "admin": limits.read_requests_per_s,
        }
        self._burst_s = limits.burst_s
        self._clock = clock
        # Tokens, and when they were counted.
        self._buckets: dict[tuple[str, str], tuple[float, float]] | SharedBuckets = {} if shared is None else shared
        self._alone = contextlib.nullcontext() if shared is None else shared

    def take(self, caller: str, scope: str) -> None:
        """Takes one token. Raises RateLimited, with the seconds until there is one again."""
        with self._alone:
            self._take(caller, scope, self._rates[scope])

    def _take(self, caller: str, scope: str, rate: float) -> None:
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


class SharedBuckets:
    """Buckets in memory that the web processes of a server share: as a dictionary, within ``with`` held against others.

    The lock is the kernel's (a POSIX lock of the memfd), which frees that of a process that dies.
    """

    SLOTS = 4096
    # Of a bucket whose place is taken, so many others are tried; then the one that was used longest ago is forgotten.
    TRIED = 8

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is one of `create`; every process maps it for itself."""
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, self.SLOTS * _BUCKET.size)

    @classmethod
    def create(cls) -> SharedBuckets:
        """New buckets. Raises OSError."""
        descriptor = os.memfd_create("relaxd-rates", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, cls.SLOTS * _BUCKET.size)
        return cls(descriptor)

    def __enter__(self) -> None:
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def get(self, key: tuple[str, str], default: tuple[float, float]) -> tuple[float, float]:
        """Tokens, and when they were counted."""
        at, is_there = self._place(_digest(key))
        if not is_there:
            return default
        _, tokens, counted = _BUCKET.unpack_from(self._memory, at)
        return tokens, counted

    def __setitem__(self, key: tuple[str, str], value: tuple[float, float]) -> None:
        digest = _digest(key)
        _BUCKET.pack_into(self._memory, self._place(digest)[0], digest, *value)

    def _place(self, digest: bytes) -> tuple[int, bool]:
        """Where a bucket stands, and whether it is there; else where it would stand."""
        first = int.from_bytes(digest[:4], "little")
        places = [(first + number) % self.SLOTS * _BUCKET.size for number in range(self.TRIED)]
        used = {}
        for at in places:
            known, _, used[at] = _BUCKET.unpack_from(self._memory, at)
            if known == digest:
                return at, True
        return min(places, key=lambda at: used[at]), False


_BUCKET = struct.Struct("<16sdd")


def _digest(key: tuple[str, str]) -> bytes:
    return hashlib.blake2b("\0".join(key).encode(), digest_size=16).digest()
