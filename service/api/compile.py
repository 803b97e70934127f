"""POST, GET and DELETE /compile: from an upload to a Compilation."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError

from service import formats, pass_context
from service.api.json_body import parse_object
from service.api.problems import check_parameters
from service.api.schemas import (
    BaseRequest,
    CompilationsView,
    CompilationView,
    CompileRequest,
    ImportRequest,
    InputRequest,
    TargetRequest,
    TuneRequest,
)
from service.api.state import Services, ServicesDep
from service.api.upload import Part, receive
from service.audit import audit
from service.errors import (
    Cancelled,
    InvalidField,
    InvalidInputsFile,
    JsonObject,
    MalformedRequest,
    MissingPart,
    UnknownCompilation,
    UnknownField,
    UnknownStep,
    nearest,
    problem_from_json,
)
from service.leftovers import remove
from service.nouns import Limits, Recipe, SpecialValues, Stage, State, Target, TensorSpec, Translator, Verify
from service.records import Compilation, Model
from service.records import Request as CompilationRequest
from service.tuning import TUNED

router = APIRouter(tags=["compile"])

MULTIPART: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["model"],
                    "properties": {
                        "model": {
                            "type": "string",
                            "format": "binary",
                            "description": "A .pt2, TorchScript or FX file.",
                        },
                        "request": {"$ref": "#/components/schemas/CompileRequest"},
                        "inputs": {
                            "type": "string",
                            "format": "binary",
                            "description": "Example inputs as an .npz of numpy.savez, arrays named as the inputs.",
                        },
                    },
                },
                "encoding": {"request": {"contentType": "application/json"}},
            }
        },
    }
}

PreferHeader = Annotated[
    str | None, Header(description="`wait=N` waits up to N seconds, `respond-async` not at all (RFC 7240).")
]


@router.post(
    "/compile",
    response_model=CompilationView,
    status_code=201,
    openapi_extra=MULTIPART,
    responses={
        200: {"model": CompilationView, "description": "The same request succeeded before; nothing was run."},
        202: {"model": CompilationView, "description": "Not ended yet; see the Location header."},
    },
)
async def post_compile(request: Request, services: ServicesDep, prefer: PreferHeader = None) -> Response:
    """Compiles a model and waits for the end: 201 new, 200 from the store, 202 when the waiting time is over first."""
    check_parameters(request)
    seconds = waiting_time(prefer, services.settings.limits.wait_s)
    receiver = await receive(request, services.store.scratch, services.settings.limits, needs_model=False)
    try:
        checked = await _check(receiver.parts, services)
        await services.retention.make_room(checked)
    except BaseException:
        receiver.discard()
        raise
    compilation, created = await services.compilations.submit(checked)
    audit("compile", compilation.id, checked.model.sha256)
    compilation = await services.compilations.wait(compilation.id, seconds)
    return _answer(compilation, created)


def _answer(compilation: Compilation, created: bool) -> Response:
    location = f"/compile/{compilation.id}"
    if compilation.problem is not None:
        problem = problem_from_json(compilation.problem)
        problem.extensions |= {"compilation": compilation.id, "href": location, "repro": compilation.repro}
        raise problem
    if compilation.state is State.CANCELLED:
        raise Cancelled(
            "The compilation was cancelled while this request waited for it. Send it again to run it.",
            compilation=compilation.id,
            href=location,
        )
    headers = {"Location": location}
    if not compilation.state.ended:
        return JSONResponse(compilation.to_json(), 202, {**headers, "Retry-After": "1"})
    return JSONResponse(compilation.to_json(), 201 if created else 200, headers)


async def _check(parts: dict[str, Part], services: Services) -> CompilationRequest:
    fields = parse_request(parts["request"].file.read_bytes()) if "request" in parts else CompileRequest()
    base = None if fields.base is None else services.compilations.get(fields.base.id)
    model, file = await _model(parts, fields, base)
    if "request" in parts:
        remove(parts["request"].file)
    examples = parts.get("inputs")
    if examples is not None and not formats.is_npz(examples.file):
        raise InvalidInputsFile("The part `inputs` is not an .npz archive. Write it with `numpy.savez(file, x=array)`.")
    translator = Translator(fields.importing.translator, fields.importing.ops)
    if translator.name == "relaxd" and translator.ops != "relax":
        raise InvalidField(
            "`import.ops` is for the translator `course`; relaxd's own gives operators of Relax.", field="import.ops"
        )
    declared = None
    if fields.inputs is not None:
        declared = tuple(TensorSpec(spec.name, tuple(spec.shape), spec.dtype) for spec in fields.inputs)
    elif base is not None:
        declared = base.inputs
    recipe = await _recipe(fields, base, translator, services)
    return CompilationRequest(
        model,
        file,
        recipe,
        Verify(fields.verify),
        SpecialValues(fields.special_values),
        declared,
        base.inputs_sha256 if examples is None and base is not None else None if examples is None else examples.sha256,
        None if examples is None else examples.file,
        translator,
        fields.keep,
        None if fields.tune is None else _budget(fields.tune, recipe, services.settings.limits),
    )


def _budget(tune: TuneRequest, recipe: Recipe, limits: Limits) -> float:
    """The seconds to tune for. Raises InvalidField where they are too many, or there will be nothing to tune."""
    if tune.budget_s > limits.tune_s:
        raise InvalidField(
            f"`tune.budget_s` is {tune.budget_s:g}, the limit is {limits.tune_s:g} seconds (RELAXD_TUNE_S).",
            field="tune.budget_s",
            limit=limits.tune_s,
        )
    if recipe.until is not None:
        raise InvalidField("`tune` is for what is built: leave out `until` or `tune`.", field="tune")
    if not any(spec.name == TUNED for spec in recipe.passes):
        raise InvalidField(
            f"`tune` chooses parameters for the pass {TUNED!r}, which the recipe lacks; the preset 'fast' has it.",
            field="tune",
        )
    return tune.budget_s


async def _model(parts: dict[str, Part], fields: CompileRequest, base: Compilation | None) -> tuple[Model, Path | None]:
    """The uploaded Model and its file, or that of the Compilation to go on from."""
    if "model" not in parts:
        if base is None:
            raise MissingPart("The body has no part `model`. With curl: -F model=@model.pt2.", part="model")
        return base.model, None
    part = parts["model"]
    recognised = await asyncio.to_thread(formats.recognise, part.file, fields.format)
    model = Model(part.sha256, recognised, part.bytes, part.filename)
    if base is not None and base.model.sha256 != model.sha256:
        raise InvalidField("`from` names a Compilation of another model; leave the part `model` out.", field="from.id")
    return model, part.file


async def _recipe(
    fields: CompileRequest, base: Compilation | None, translator: Translator, services: Services
) -> Recipe:
    """The Recipe of a request: after those of the step to go on from, and up to the stage to stop at."""
    catalogue = await services.compilations.catalogue()
    limit = services.settings.limits.passes
    target = Target(fields.target.cpu, fields.target.threads)
    context = pass_context.parse(fields.pass_context)
    passes = fields.passes
    if base is not None and fields.base is not None:
        if fields.base.step > len(base.recipe.passes):
            raise UnknownStep(
                f"Compilation {base.id!r} has {len(base.recipe.passes)} passes, so no step {fields.base.step}.",
                id=base.id,
                step=fields.base.step,
                steps=list(range(len(base.recipe.passes) + 1)),
            )
        before = [spec.to_json() for spec in base.recipe.passes[: fields.base.step]]
        passes = before + (passes if isinstance(passes, list) else [] if passes is None else [passes])
    recipe: Recipe = catalogue.recipe(passes, target, limit, context, translator)
    return recipe if fields.until is None else catalogue.until(recipe, Stage(fields.until))


def parse_request(data: bytes) -> CompileRequest:
    """The `request` part. Raises MalformedRequest, UnknownField, InvalidField."""
    fields = parse_object(data, "The part `request`")
    try:
        return CompileRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    where = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        known = _known_fields(first["loc"])
        near = nearest(str(first["loc"][-1]), known)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known fields: {', '.join(known)}."
        raise UnknownField(f"The request has an unknown field `{where}`. {hint}", field=where, nearest=near)
    raise InvalidField(f"`{where}` is invalid: {first['msg']}.", field=where)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")[:200]


def _known_fields(location: tuple[int | str, ...]) -> list[str]:
    nested: dict[str, type[BaseModel]] = {
        "inputs": InputRequest,
        "target": TargetRequest,
        "import": ImportRequest,
        "from": BaseRequest,
        "tune": TuneRequest,
    }
    model = nested[str(location[0])] if len(location) > 1 else CompileRequest
    return [field.alias or name for name, field in model.model_fields.items()]


def waiting_time(prefer: str | None, default: float) -> float:
    """Seconds to wait by a Prefer header: `wait=N` up to the default's limit, 0 for `respond-async`.

    Raises MalformedRequest for a wait that is no number; preferences that are not known are ignored (RFC 7240).
    """
    if prefer is None:
        return default
    seconds = default
    for preference in prefer.split(","):
        name, _, value = preference.partition("=")
        if name.strip().lower() == "respond-async":
            return 0.0
        if name.strip().lower() == "wait":
            if not re.fullmatch(r"\s*\d{1,9}(\.\d+)?\s*", value, re.ASCII):
                raise MalformedRequest(f"`Prefer: wait={value[:40]}` must be a number of seconds.")
            seconds = min(float(value), default)
    return seconds


@router.get("/compile", response_model=CompilationsView)
async def list_compilations(
    request: Request, services: ServicesDep, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Response:
    """The newest Compilations, the latest first."""
    check_parameters(request, "limit")
    listed = []
    ids = services.compilations.newest(limit)
    with services.lists.writing(len(ids)):
        for id in ids:
            # It may be deleted meanwhile.
            with contextlib.suppress(UnknownCompilation):
                listed.append(bytes(JSONResponse(services.compilations.get(id).to_json()).body))
            # Each may have hundreds of steps: others have their turn between two.
            await asyncio.sleep(0)
    return Response(b'{"compilations":[' + b",".join(listed) + b"]}", media_type="application/json")


@router.get("/compile/{id}", response_model=CompilationView)
async def get_compilation(id: str, request: Request, services: ServicesDep, prefer: PreferHeader = None) -> Response:
    """A Compilation as it stands; with `Prefer: wait=N` as soon as it has ended, or after N seconds."""
    check_parameters(request)
    seconds = 0.0 if prefer is None else waiting_time(prefer, services.settings.limits.wait_s)
    compilation = await services.compilations.wait(id, seconds)
    return JSONResponse(compilation.to_json())


@router.delete("/compile/{id}", status_code=204)
async def delete_compilation(id: str, request: Request, services: ServicesDep) -> Response:
    """Cancels a Compilation that has not ended; deletes one that has, with all that belongs to it alone."""
    check_parameters(request)
    compilation = services.compilations.get(id)
    services.publications.check_deletable(id)
    await services.compilations.delete(id)
    audit("delete", id)
    if compilation.state.ended:
        await services.bisections.forget(id)
        services.sessions.unload(id)
        await services.fronts.unload(id)
    return Response(status_code=204)
