"""What the fast lane needs of the application: who may come in, and the core that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from fastapi import Response

from service import keys
from service.api.access import Gate
from service.api.browsers import HEADERS, is_local
from service.api.inference import THREAD_BYTES, Inference, InferenceHead
from service.api.problems import render
from service.api.state import InferenceServices
from service.errors import Problem
from service.replica import Call, Outcome
from service.request_head import RequestHead, read_head
from service.request_log import RequestNote, current, request_id


@dataclass(frozen=True, slots=True)
class Usual:
    """A head that the fast lane takes, and what follows from it alone."""

    head: RequestHead
    asked: InferenceHead
    # The path in the log.
    path: str
    # Its bytes with the empty line that ends it, and of head and body together their number.
    begins: bytes
    total_bytes: int


@dataclass(slots=True)
class Running:
    """An inference that was asked for: its call, or the Problem that kept it from being one."""

    inference: Inference
    note: RequestNote
    call: Call | None
    problem: Problem | None = None


# The path in the log, by whether it is without a model, and without a version.
_PATHS = {
    (True, True): "/infer",
    (False, True): "/v2/models/{model}/infer",
    (False, False): "/v2/models/{model}/versions/{version}/infer",
}
# Clients send the same heads again and again.
MAX_HEADS = 1024


class Door:
    """One a server, in the lifespan's state under `STATE`. For the event loop's thread."""

    STATE: ClassVar[str] = "door"
    # What every answer has besides its own.
    HEADERS: ClassVar = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    def __init__(self, services: InferenceServices, gate: Gate, *, local_only: bool) -> None:
        """With `local_only` the Host of a request must be this machine, as `Browsers` has it."""
        self._services = services
        self._gate = gate
        self._local_only = local_only
        self._heads: dict[bytes, Usual | None] = {}

    def read_head(self, head: bytes) -> Usual | None:
        """A head that the fast lane takes; None for one that is unusual, or whose body is too large for it."""
        known = self._heads.get(head)
        if known is not None or head in self._heads:
            return known
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        found = self._heads[head] = self._checked(head + b"\r\n\r\n", read_head(head))
        return found

    def _checked(self, begins: bytes, head: RequestHead | None) -> Usual | None:
        if head is None or head.content_length > self._services.settings.limits.infer_body_bytes:
            return None
        if self._local_only and not is_local(head.host):
            return None
        # JSON of this size is read in another thread; raw bytes are not read at all.
        if head.header_length is None and head.content_length > THREAD_BYTES:
            return None
        asked = InferenceHead(head.model, head.version, head.header_length, None, head.accept_encoding)
        path = _PATHS[head.model is None, head.version is None]
        return Usual(head, asked, path, begins, len(begins) + head.content_length)

    def submit(self, usual: Usual, body: memoryview, settle: Callable[[Outcome | Problem], None]) -> Running | None:
        """Reads a request and has it run; `settle` gets the outcome, later.

        None where the gate would refuse it: that is for the route to say.
        """
        head, services = usual.head, self._services
        try:
            caller = self._gate.admit(head.authorization or "", "POST", "/infer")
        except Problem:
            return None
        inference = Inference(services, usual.asked, body)
        services.statistics.by_fast_lane += 1
        note = RequestNote(request_id(head.request_id), "POST", usual.path)
        token = None
        if caller is not None:
            note.caller = caller.name
            token = keys.current.set(caller)
        try:
            inference.prepare()
            asked = inference.asked
            call = services.sessions.submit(inference.loadable, asked.inputs, settle, asked.timeout_us, note.id)
            return Running(inference, note, call)
        except Problem as problem:
            return Running(inference, note, None, problem)
        finally:
            note.model = head.model if inference.found is None else inference.found.name
            if token is not None:
                keys.current.reset(token)

    def refusal(self, running: Running, problem: Problem) -> Response:
        """The answer for a Problem, as the route gives it."""
        token = current.set(running.note)
        try:
            return render(running.inference.path, self._services.statistics, problem)
        finally:
            current.reset(token)
