"""What the fast lane needs of the application: who may come in, and the core that answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from fastapi import Response

from service import keys
from service.api.access import scope_of
from service.api.browsers import is_local
from service.api.inference import THREAD_BYTES, Inference, InferenceHead
from service.api.problems import render
from service.api.state import Services
from service.errors import Problem
from service.keys import Caller, Keys
from service.rates import Rates
from service.replica import Call, Outcome
from service.request_head import RequestHead, read_head
from service.serving_errors import RateLimited

# Clients send the same heads again and again.
MAX_HEADS = 1024


class Door:
    """One a server, in the lifespan's state under `STATE`. For the event loop's thread."""

    STATE: ClassVar[str] = "door"

    def __init__(self, services: Services, known: Keys | None, rates: Rates, *, local_only: bool) -> None:
        """`known` are the keys of callers; None where none are asked for.

        With `local_only` a request must name this machine as its Host.
        """
        self._services = services
        self._keys = known
        self._rates = rates
        self._local_only = local_only
        self._heads: dict[bytes, RequestHead | None] = {}

    def read_head(self, head: bytes) -> RequestHead | None:
        """A head that the fast lane takes; None for one that is unusual, or whose body is too large for it."""
        if head not in self._heads:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[head] = self._checked(read_head(head))
        return self._heads[head]

    def _checked(self, head: RequestHead | None) -> RequestHead | None:
        if head is not None and self._local_only and not is_local(head.host):
            return None
        if head is None or head.content_length > self._services.settings.limits.infer_body_bytes:
            return None
        # JSON of this size is read in another thread; raw bytes are not read at all.
        return None if head.header_length is None and head.content_length > THREAD_BYTES else head

    def begin(self, head: RequestHead, body: memoryview) -> Inference | None:
        """The inference that a request asks for; None where the route has to look at who asks."""
        if self._keys is not None and not self._is_admitted(self._caller(head)):
            return None
        asked = InferenceHead(head.model, head.version, head.header_length, None, head.accept_encoding)
        return Inference(self._services, asked, body)

    def submit(self, inference: Inference, head: RequestHead, settle: Callable[[Outcome | Problem], None]) -> Call:
        """Reads it and has it run; `settle` gets the outcome. Raises Problems."""
        self._services.statistics.by_fast_lane += 1
        token = keys.current.set(self._caller(head))
        try:
            inference.prepare()
        finally:
            keys.current.reset(token)
        asked = inference.asked
        return self._services.sessions.submit(inference.loadable, asked.inputs, settle, asked.timeout_us)

    def refusal(self, inference: Inference, problem: Problem) -> Response:
        """The answer for a Problem, as the route gives it."""
        return render(inference.path, self._services.statistics, problem)

    def _is_admitted(self, caller: Caller | None) -> bool:
        if caller is None:
            return False
        try:
            self._rates.take(caller.name, "infer")
        except RateLimited:
            return False
        return True

    def _caller(self, head: RequestHead) -> Caller | None:
        if self._keys is None or head.authorization is None:
            return None
        kind, _, key = head.authorization.partition(" ")
        caller = self._keys.find(key.strip()) if kind.lower() == "bearer" else None
        return caller if caller is not None and caller.may(scope_of("POST", "/infer")) else None
