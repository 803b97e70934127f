"""GET /compile/{id}/events: what happens to a Compilation, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse

from service.api.problems import check_parameters
from service.api.state import ServicesDep
from service.compilations import Compilations
from service.errors import InvalidField, JsonObject

router = APIRouter(tags=["compile"])

# Proxies drop connections that are silent for a minute.
HEARTBEAT_S = 15.0


@router.get(
    "/compile/{id}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def get_events(
    id: str,
    request: Request,
    services: ServicesDep,
    last_event_id: Annotated[str | None, Header(description="Resume after this event, a step's index.")] = None,
) -> StreamingResponse:
    """One `step` event for each step, from the first or from after Last-Event-ID, then one `ended`, and the end.

    While kernels are tuned there are `tuning` events, too. The data of `step` and `tuning` is as in the Compilation,
    that of `ended` is the Compilation.
    """
    check_parameters(request)
    services.compilations.get(id)
    seen = 0
    if last_event_id is not None:
        if not last_event_id.isdecimal() or len(last_event_id) > 9:
            raise InvalidField("`Last-Event-ID` must be the index of a step.", field="Last-Event-ID")
        seen = int(last_event_id) + 1
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(services.compilations, id, seen), media_type="text/event-stream", headers=headers)


async def _events(compilations: Compilations, key: str, seen: int) -> AsyncIterator[str]:
    tuning = None
    while True:
        compilation = compilations.get(key)
        document = compilation.to_json()
        for step in document["steps"][seen:]:
            seen += 1
            yield _event("step", step, str(step["index"]))
        if compilation.tuning is not None and compilation.tuning != tuning and not compilation.state.ended:
            tuning = compilation.tuning
            yield _event("tuning", document["tuning"], None)
        if compilation.state.ended:
            yield _event("ended", document, None)
            return
        try:
            await asyncio.wait_for(compilations.progress(key), HEARTBEAT_S)
        except TimeoutError:
            yield ": still working\n\n"


def _event(name: str, data: JsonObject, number: str | None) -> str:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n"
