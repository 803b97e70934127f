"""One request for an inference, whichever door it came through: the routes here, or the fast lane before them.

All that decides an answer is in `Inference`; a door reads the request, calls its steps, and sends what they give.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request, Response

from service.api import plain_body
from service.api.json_body import parse_object
from service.api.oip_body import (
    Answer,
    Asked,
    Plan,
    deflated,
    inflate,
    read_fields,
    read_whole_body,
    split,
    write_answer,
)
from service.api.state import InferenceServices
from service.api.upload import read_body
from service.errors import JsonObject
from service.loading import Loadable
from service.publications import Servable
from service.replica import Outcome
from service.request_log import current

# So many plans are kept of a model, for JSON of up to so many bytes.
_PLANS = 64
_PLANNED_BYTES = 4096
# Work on more than this at once would keep other requests waiting for milliseconds.
THREAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class InferenceHead:
    """What of a request's head its answer depends on. Without `model` it is POST /infer, whose body names one."""

    model: str | None = None
    version: str | None = None
    header_length: str | None = None
    encoding: str | None = None
    accept_encoding: str = ""
    # Of POST /infer with the body of a .npy file, which has no room for a name.
    query_model: str | None = None


class Inference:
    """One request from its body to its answer, counted in the statistics of its model.

    Call `prepare`, run `asked` of `found`, and give the outcome to `write` and `succeeded`; on any error call `failed`.
    """

    # Until they are read; most requests have no use for some of them. What is read takes their place: none is changed.
    asked = Asked([], {})
    _fields: JsonObject = {}  # noqa: RUF012
    _text = b""
    _raw = memoryview(b"")

    def __init__(self, services: InferenceServices, head: InferenceHead, body: bytes | memoryview) -> None:
        self.found: Servable | None = None
        self._services = services
        self._head = head
        self._body = body
        self._begun = time.perf_counter_ns()

    @property
    def path(self) -> str:
        """Where it was sent, as far as that matters for errors: /infer, or below /v2."""
        return "/infer" if self._head.model is None else "/v2/models"

    def prepare(self) -> None:
        """All three steps: what is asked of which model. Raises Problems of the request, UnknownModel."""
        if self._head.model is not None and self._head.header_length is not None and self._head.encoding is None:
            self._find()
            if self._read_by_plan():
                return
            self._parse()
            self._read()
            self._make_plan()
            return
        for step, _ in self.steps():
            step()

    def _read_by_plan(self) -> bool:
        """Reads the body as others with the same JSON part were read; False where there were none, or it is wrong."""
        length, found = self._head.header_length, self.found
        if found is None or length is None or not length.isdecimal():
            return False
        view, end = memoryview(self._body), int(length)
        plan = found.plans.get(bytes(view[:end])) if 0 < end <= len(view) else None
        asked = None if plan is None else plan.read(view[end:])
        if asked is None:
            return False
        self.asked = asked
        return True

    def _make_plan(self) -> None:
        plans = self._servable.plans
        if not self._text or len(self._text) > _PLANNED_BYTES or not Plan.is_planned(self._fields):
            return
        if len(plans) >= _PLANS:
            plans.clear()
        plans[self._text] = Plan(self._fields, self.asked, self._servable.signature)

    def steps(self) -> list[tuple[Callable[[], None], bool]]:
        """The steps in order, and of each whether it may run in another thread."""
        if self._head.model is not None:
            return [(self._find, False), (self._parse, True), (self._read, True)]
        return [(self._parse, True), (self._find, False), (self._read, True)]

    def _find(self) -> None:
        name = self._head.model if self._head.model is not None else plain_body.model_of(self._fields)
        self.found = self._services.publications.find(name, self._head.version)

    def _parse(self) -> None:
        limit = self._services.settings.limits.infer_body_bytes
        body = inflate(self._body, self._head.encoding, limit)
        if self._head.model is None and plain_body.is_array(body):
            self._fields, self._raw = {"model": self._head.query_model}, memoryview(body)
            return
        self._text, self._raw = split(body, self._head.header_length)
        if self._text or self._head.header_length is None:
            self._fields = parse_object(self._text, "The body" if not self._raw else "The JSON part of the body")
        if self._head.model is None:
            plain_body.check_fields(self._fields)

    def _read(self) -> None:
        signature, fields, text = self._servable.signature, self._fields, self._text
        has_raw = self._head.header_length is not None
        if self._head.model is not None and has_raw and not text:
            self.asked = read_whole_body(self._raw, signature)
        elif self._head.model is not None or isinstance(fields.get("inputs"), list):
            strict = self._head.model is not None
            self.asked = read_fields(fields, text, self._raw, signature, has_raw=has_raw, strict=strict)
        elif text:
            self.asked = plain_body.read_fields(fields, text, signature)
        else:
            self.asked = plain_body.read_array(self._raw, signature)

    @property
    def loadable(self) -> Loadable:
        """What is to be run, once it is found."""
        return self._servable.loadable

    @property
    def _servable(self) -> Servable:
        if self.found is None:
            raise RuntimeError("an inference is read before its model is found")
        return self.found

    def write(self, outcome: Outcome) -> Answer:
        """The answer, encoded as the caller takes it. In any thread."""
        plan = self.asked.plan
        known = None if plan is None or self._head.accept_encoding else plan.answer(outcome.outputs)
        if known is not None:
            return known
        found = self._servable
        artifact = found.compilation.id if self._head.model is None else None
        if self.asked.plain:
            plain = plain_body.write_answer(found, self.asked, outcome.outputs)
        else:
            plain = write_answer(found.name, found.version, self.asked, outcome.outputs, found.signature, artifact)
        return deflated(plain, self._head.accept_encoding) if self._head.accept_encoding else plain

    def succeeded(self, outcome: Outcome) -> None:
        """Counts it. In the event loop's thread, as all counting."""
        found, whole_ns = self._servable, time.perf_counter_ns() - self._begun
        self._services.statistics.succeeded(found.name, found.version, whole_ns, outcome)

    def failed(self) -> None:
        """Counts an error, where the model is known."""
        if self.found is not None:
            whole_ns = time.perf_counter_ns() - self._begun
            self._services.statistics.failed(self.found.name, self.found.version, whole_ns)


async def answer_by_route(request: Request, services: InferenceServices, head: InferenceHead) -> Response:
    """The door of the routes. Raises Problems."""
    body = await read_body(request, services.settings.limits.infer_body_bytes)
    inference = Inference(services, head, body)
    is_large = len(body) > THREAD_BYTES or head.encoding is not None
    try:
        for step, anywhere in inference.steps():
            await (asyncio.to_thread(step) if is_large and anywhere else _now(step))
        asked, loadable = inference.asked, inference.loadable
        outcome = await services.sessions.run(loadable, asked.inputs, asked.timeout_us)
        if outcome.output_bytes > THREAD_BYTES:
            answer = await asyncio.to_thread(inference.write, outcome)
        else:
            answer = inference.write(outcome)
    except Exception:
        inference.failed()
        raise
    finally:
        note = current.get()
        if note is not None and inference.found is not None:
            note.model = inference.found.name
    inference.succeeded(outcome)
    return Response(answer.body, headers=answer.headers)


async def _now(step: Callable[[], None]) -> None:
    step()
