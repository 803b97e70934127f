"""GET /ir/{stage}: the IR after a step, as text or structured."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from service.api.problems import check_parameters
from service.api.schemas import SnapshotView
from service.api.state import ServicesDep
from service.errors import NotAcceptable, StageNotReached, UnknownFunction, UnknownStage, UnknownStep, nearest
from service.nouns import Compilation, Stage, Step

router = APIRouter(tags=["ir"])

_REPRESENTATIONS = ("text/plain", "application/json")


@router.get(
    "/ir/{stage}",
    response_model=SnapshotView,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_ir(
    stage: str,
    request: Request,
    services: ServicesDep,
    id: Annotated[str | None, Query(description="A Compilation; default: the latest.")] = None,
    step: Annotated[int | None, Query(description="A step of that stage; default: its last.")] = None,
    function: Annotated[str | None, Query(description="One function; default: all.")] = None,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """The IR after the last step of a stage: TVMScript, or JSON with functions, operators and calls."""
    check_parameters(request, "id", "step", "function")
    representation = preferred(accept, _REPRESENTATIONS)
    if stage not in list(Stage):
        stages = [known.value for known in Stage]
        raise UnknownStage(
            f"There is no stage {stage[:100]!r}. Stages: {', '.join(stages)}.",
            stage=stage[:100],
            stages=stages,
            nearest=nearest(stage, stages),
        )
    compilations = services.compilations
    compilation = compilations.latest() if id is None else compilations.get(id)
    found = _find_step(compilation, Stage(stage), step)
    snapshot = compilations.snapshot(compilation.id, found.index)
    if function is not None:
        snapshot = _one_function(snapshot, function)
    if representation == "text/plain":
        headers = {"X-Compilation": compilation.id, "X-Step": str(found.index)}
        return PlainTextResponse(snapshot["text"], headers=headers)
    view = next(entry for entry in compilation.to_json()["steps"] if entry["index"] == found.index)
    return JSONResponse({"id": compilation.id, "stage": stage, "step": view, **snapshot})


def _find_step(compilation: Compilation, stage: Stage, index: int | None) -> Step:
    of_stage = [step for step in compilation.steps if step.stage is stage]
    if not of_stage:
        reached = list(dict.fromkeys(step.stage.value for step in compilation.steps))
        state = compilation.state.value
        raise StageNotReached(
            f"This compilation ({state}) has no step of stage {stage.value!r}; it has: {', '.join(reached) or 'none'}.",
            id=compilation.id,
            state=state,
            stages=reached,
        )
    if index is None:
        return of_stage[-1]
    for step in of_stage:
        if step.index == index:
            return step
    steps = [step.index for step in of_stage]
    raise UnknownStep(
        f"Step {index} is not a step of stage {stage.value!r}; those are: {', '.join(map(str, steps))}.",
        id=compilation.id,
        step=index,
        steps=steps,
    )


def _one_function(snapshot: dict[str, Any], name: str) -> dict[str, Any]:
    functions = [entry for entry in snapshot["functions"] if entry["name"] == name]
    if not functions:
        names = [entry["name"] for entry in snapshot["functions"]]
        raise UnknownFunction(
            f"The IR has no function {name[:100]!r}; it has: {', '.join(names)}.",
            function=name[:100],
            functions=names,
            nearest=nearest(name, names),
        )
    return {"text": functions[0]["text"], "functions": functions}


def preferred(accept: str, available: tuple[str, ...]) -> str:
    """The representation that an Accept header wants most; the first available where it does not care.

    Raises NotAcceptable. Media ranges and q values as in RFC 9110, section 12.5.1.
    """

    def quality(media_type: str) -> float:
        best = (-1, 0.0)
        for entry in accept.split(","):
            media_range, *parameters = (part.strip().lower() for part in entry.split(";"))
            specificity = {media_type: 2, f"{media_type.split('/')[0]}/*": 1, "*/*": 0}.get(media_range, -1)
            weights = [value[2:] for value in parameters if value.startswith("q=")]
            try:
                weight = float(weights[0]) if weights else 1.0
            except ValueError:
                weight = 0.0
            if specificity > best[0]:
                best = (specificity, weight)
        return best[1]

    chosen = max(available, key=quality)
    if quality(chosen) <= 0:
        raise NotAcceptable(
            f"`Accept: {accept[:100]}` asks for none of {', '.join(available)}.", available=list(available)
        )
    return chosen
