"""POST /infer: inputs as JSON to a compiled Artifact, outputs as JSON back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from service.api.json_body import parse_object
from service.api.problems import check_parameters
from service.api.schemas import InferResponse
from service.api.state import ServicesDep
from service.api.tensors import read_inputs, write_outputs
from service.api.upload import read_body
from service.errors import InvalidField, UnknownField, nearest

router = APIRouter(tags=["infer"])

_FIELDS = ("model", "inputs", "id", "parameters", "outputs")
# Parsing more than this at once would keep other requests waiting for milliseconds.
_PARSE_IN_THREAD_BYTES = 64 << 10


@router.post(
    "/infer",
    response_model=InferResponse,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/InferRequest"}}},
        }
    },
)
async def post_infer(request: Request, services: ServicesDep) -> Response:
    """Runs an Artifact. `model` is the name of a published model, or the id of a Compilation that succeeded."""
    check_parameters(request)
    body = await read_body(request, services.settings.limits.infer_body_bytes)
    if len(body) > _PARSE_IN_THREAD_BYTES:
        fields = await asyncio.to_thread(parse_object, body, "The body")
    else:
        fields = parse_object(body, "The body")
    _check_fields(fields)
    found = services.publications.find(fields["model"])
    compilation, signature = found.compilation, found.signature
    begun = time.perf_counter_ns()
    may_have_booleans = b"true" in body or b"false" in body
    inputs = await _in_thread_if_large(
        len(body), lambda: read_inputs(fields["inputs"], signature, may_have_booleans=may_have_booleans)
    )
    outputs = (await services.sessions.run(found.loadable, inputs)).outputs
    run_ns = time.perf_counter_ns() - begun
    as_oip = isinstance(fields["inputs"], list)
    size = sum(len(tensor.data) for tensor in outputs)
    written = await _in_thread_if_large(size, lambda: write_outputs(outputs, signature, as_oip=as_oip))
    answer = {"model": compilation.id, "outputs": written}
    if as_oip:
        answer["model_name"] = found.name
    if "id" in fields:
        answer["id"] = fields["id"]
    services.statistics.succeeded(found.name, found.version, time.perf_counter_ns() - begun, run_ns)
    return JSONResponse(answer)


async def _in_thread_if_large(size: int, work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work) if size > _PARSE_IN_THREAD_BYTES else work()


def _check_fields(fields: dict[str, Any]) -> None:
    for name in fields:
        if name not in _FIELDS:
            near = nearest(name, _FIELDS)
            raise UnknownField(
                f"The body has an unknown field `{name[:100]}`; it takes `model` and `inputs`.",
                field=name[:100],
                nearest=near,
            )
    if not isinstance(fields.get("model"), str):
        raise InvalidField("`model` must be the name of a published model or the id of a compilation.", field="model")
    if not isinstance(fields.get("id", ""), str):
        raise InvalidField("`id` must be a string.", field="id")
    if "inputs" not in fields:
        raise InvalidField("`inputs` is missing: an object {name: nested list} or a list of tensors.", field="inputs")
