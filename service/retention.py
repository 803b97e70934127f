"""How much is stored, in all and for each caller, and for how long: what makes room, and what never does."""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import time
from collections.abc import Callable

from service import keys
from service.audit import audit
from service.compilations import Compilations
from service.errors import StorageFull
from service.journal import Journal
from service.leftovers import remove
from service.records import Request
from service.serving_errors import QuotaExceeded
from service.settings import Settings
from service.store import Store
from service.uninterrupted import uninterrupted

log = logging.getLogger(__name__)

SWEEP_S = 60.0


class Retention:
    """Keeps what is stored within its limits. Methods belong to the event loop's thread.

    Only a Compilation that has ended, is not published and is not loaded makes room; of one that other callers have
    submitted, too, the claim of one caller alone goes. By default nothing does: requests beyond a quota are refused.
    """

    def __init__(
        self,
        journal: Journal,
        store: Store,
        compilations: Compilations,
        is_loaded: Callable[[str], bool],
        settings: Settings,
    ) -> None:
        """`is_loaded` tells whether the Artifact of a Compilation is loaded anywhere."""
        self._journal = journal
        self._store = store
        self._compilations = compilations
        self._is_loaded = is_loaded
        self._limits = settings.limits
        self._evict = settings.evict
        self._noted = time.monotonic()

    async def make_room(self, request: Request) -> None:
        """Lets in what an upload adds, after an eviction where the server does that. Raises QuotaExceeded, StorageFull.

        A request whose Compilation is there adds nothing.
        """
        if not await self._compilations.is_new(request):
            return
        files = {request.model.sha256: request.model_file, str(request.inputs_sha256): request.inputs_file}
        sizes = {digest: file.stat().st_size for digest, file in files.items() if file is not None}
        current = keys.current.get()
        if current is not None:
            own = self._journal.objects_of(current.name, sizes)
            await self._make_room_of(current.name, sum(size for digest, size in sizes.items() if digest not in own))
        added = sum(size for digest, size in sizes.items() if not self._store.size(digest))
        limit = self._limits.stored_bytes
        await self._evict_until(None, added, limit, self._store.used_bytes)
        if self._store.used_bytes() + added > limit:
            raise StorageFull(
                f"The server stores {self._store.used_bytes()} bytes, and {added} more are over its limit of {limit}. "
                "DELETE Compilations that are not needed, or ask the operator."
            )

    async def _make_room_of(self, caller: str, added: int) -> None:
        limit = self._limits.caller_stored_bytes
        await self._evict_until(caller, added, limit, lambda: self._journal.stored_bytes(caller))
        used = self._journal.stored_bytes(caller)
        if used + added > limit:
            raise QuotaExceeded(
                f"The Compilations of the key {caller!r} have {used} bytes, and {added} more are over its limit of "
                f"{limit}. DELETE some that are not needed.",
                quota="stored_bytes",
                limit=limit,
                used_bytes=used,
            )

    async def _evict_until(self, caller: str | None, added: int, limit: int, used: Callable[[], int]) -> None:
        """Where the server evicts, deletes until so much more is within the limit; nothing for what never can be."""
        if not self._evict or added > limit or used() + added <= limit:
            return
        await self._note_uses()
        for key in self._journal.unused(caller=caller):
            await self._remove(key, caller, "evict")
            if used() + added <= limit:
                return

    async def sweep(self) -> None:
        """Notes what was used, and deletes what was not for `expire_s`, and files that could not be deleted before."""
        await asyncio.to_thread(remove)
        await self._note_uses()
        for key in self._journal.unused(self._limits.expire_s):
            await self._remove(key, None, "expire")

    async def keep_sweeping(self) -> None:
        """Sweeps from time to time, until it is cancelled."""
        while True:
            await asyncio.sleep(min(SWEEP_S, math.ceil(self._limits.expire_s / 2)))
            try:
                await self.sweep()
            except (sqlite3.Error, OSError):
                log.exception("expired compilations could not be deleted")

    async def _note_uses(self) -> None:
        passed, self._noted = time.monotonic() - self._noted, time.monotonic()
        used, self._compilations.used = self._compilations.used, set()
        try:
            await uninterrupted(self._journal.let_pass, passed, used)
        except (sqlite3.Error, OSError):
            self._compilations.used |= used
            raise

    async def _remove(self, key: str, caller: str | None, why: str) -> None:
        if self._is_loaded(key) or self._compilations.runs(key):
            return
        if caller is not None and await uninterrupted(self._journal.release, key, caller):
            audit(why, key, "claim")
            return
        await self._compilations.forget(key)
        audit(why, key)
