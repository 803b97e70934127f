"""POST, GET and DELETE /compile/{id}/bisect: which step goes wrong, which pass of TVM in it, and a smaller model."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError

from service.api.bisect_schemas import BisectionView, BisectRequest
from service.api.compile import PreferHeader, waiting_time
from service.api.download import file_answer
from service.api.json_body import parse_object
from service.api.problems import check_parameters
from service.api.state import Services, ServicesDep
from service.api.upload import read_body
from service.bisection import Bisection, Bounds
from service.diagnosis import symptom_of
from service.errors import InvalidField, JsonObject, NotFound, Problem, UnknownField, nearest
from service.nouns import State
from service.records import Compilation
from service.symptoms import Symptom, SymptomKind

router = APIRouter(tags=["compile"])

_BODY: JsonObject = {
    "requestBody": {
        "required": False,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/BisectRequest"}}},
    }
}


@router.post(
    "/compile/{id}/bisect",
    response_model=BisectionView,
    openapi_extra=_BODY,
    responses={
        200: {"model": BisectionView, "description": "It has ended; with `Prefer: wait=N` only."},
        202: {"model": BisectionView, "description": "Not ended yet; see the Location header."},
    },
    status_code=202,
)
async def post_bisect(id: str, request: Request, services: ServicesDep, prefer: PreferHeader = None) -> Response:
    """Bisects a Compilation that fails, crashes, hangs, is wrong, or is slower than another of the same model.

    Finds the step, TVM's pass inside of it, and reduces the model for as long as it shows the same.
    """
    check_parameters(request)
    fields = _parse(await read_body(request, services.settings.limits.request_bytes))
    compilation = services.compilations.get(id)
    symptom = _symptom(fields, compilation, services)
    uploaded = await asyncio.to_thread(services.compilations.uploaded, compilation)
    bounds = Bounds(fields.attempts, fields.seconds)
    services.bisections.start(compilation, uploaded, symptom, fields.against, bounds)
    seconds = 0.0 if prefer is None else waiting_time(prefer, services.settings.limits.wait_s)
    return _answer(await services.bisections.wait(id, seconds), raising=True)


def _answer(bisection: Bisection, raising: bool) -> Response:
    headers = {"Location": f"/compile/{bisection.compilation}/bisect"}
    if raising and bisection.state is State.FAILED and bisection.problem is not None:
        problem: Problem = type(bisection.problem)(bisection.problem.detail, **bisection.problem.extensions)
        problem.extensions |= {"compilation": bisection.compilation, "href": headers["Location"]}
        raise problem
    if not bisection.state.ended:
        return JSONResponse(bisection.to_json(), 202, {**headers, "Retry-After": "1"})
    return JSONResponse(bisection.to_json(), 200, headers)


@router.get("/compile/{id}/bisect", response_model=BisectionView)
async def get_bisect(id: str, request: Request, services: ServicesDep, prefer: PreferHeader = None) -> Response:
    """A bisection as it stands; with `Prefer: wait=N` as soon as it has ended, or after N seconds."""
    check_parameters(request)
    seconds = 0.0 if prefer is None else waiting_time(prefer, services.settings.limits.wait_s)
    services.compilations.get(id)
    bisection = await services.bisections.wait(id, seconds)
    return JSONResponse(bisection.to_json())


@router.delete("/compile/{id}/bisect", status_code=204)
async def delete_bisect(id: str, request: Request, services: ServicesDep) -> Response:
    """Cancels a bisection that has not ended, forgets one that has."""
    check_parameters(request)
    services.compilations.get(id)
    await services.bisections.delete(id)
    return Response(status_code=204)


@router.get(
    "/compile/{id}/bisect/model.pt2",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_reduced_model(id: str, request: Request, services: ServicesDep) -> Response:
    """The smallest model so far that shows what was found, with its example inputs."""
    check_parameters(request)
    services.compilations.get(id)
    bisection = services.bisections.get(id)
    if bisection.reduced is None:
        raise NotFound(
            f"The bisection of {id!r} ({bisection.state.value}) has no reduced model.", path=request.url.path
        )
    answer = file_answer(bisection.reduced.open("rb"), f"reduced-{id[:12]}.pt2", "application/octet-stream")
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _parse(data: bytes) -> BisectRequest:
    """The body, which may be empty. Raises MalformedRequest, UnknownField, InvalidField."""
    try:
        return BisectRequest.model_validate(parse_object(data, "The body") if data.strip() else {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:200]
    if first["type"] == "extra_forbidden":
        known = list(BisectRequest.model_fields)
        raise UnknownField(
            f"The request has an unknown field `{where}`. Known fields: {', '.join(known)}.",
            field=where,
            nearest=nearest(where, known),
        )
    raise InvalidField(f"`{where}` is invalid: {first['msg']}.", field=where)


def _symptom(fields: BisectRequest, compilation: Compilation, services: Services) -> Symptom:
    if fields.symptom != "slow":
        if fields.against is not None:
            raise InvalidField('`against` is for `"symptom": "slow"`.', field="against")
        return Symptom(SymptomKind.WRONG) if fields.symptom == "wrong" else symptom_of(compilation)
    if fields.against is None:
        raise InvalidField("`against` must name the compilation that is quicker.", field="against")
    other = services.compilations.get(fields.against)
    if (other.model.sha256, other.translator) != (compilation.model.sha256, compilation.translator):
        raise InvalidField(f"`against` is a compilation of another model, {other.model.filename!r}.", field="against")
    if other.recipe.passes == compilation.recipe.passes:
        raise InvalidField("`against` has the same passes: no step of them can be the cause.", field="against")
    return Symptom(SymptomKind.SLOW, factor=fields.factor, against=other.recipe.passes)
