"""GET /ir/{stage}: the IR after a step, as text or structured."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from service.api.browsers import STYLED
from service.api.ir_schemas import DifferenceView, SnapshotView
from service.api.problems import check_parameters
from service.api.state import ServicesDep
from service.compilations import Compilations
from service.errors import NotAcceptable, StageNotReached, UnknownFunction, UnknownStage, UnknownStep, nearest
from service.ir_diff import difference
from service.nouns import Stage, State, Step
from service.records import Compilation
from service.representations import to_dot, to_html, to_model_explorer

router = APIRouter(tags=["ir"])

_TEXT, _JSON, _HTML, _DOT = "text/plain", "application/json", "text/html", "text/vnd.graphviz"
_MODEL_EXPLORER = "application/vnd.model-explorer+json"
_REPRESENTATIONS = (_TEXT, _JSON, _HTML, _DOT, _MODEL_EXPLORER)
# For those who cannot send a header, such as a link.
_FORMATS = {"text": _TEXT, "json": _JSON, "html": _HTML, "dot": _DOT, "model_explorer": _MODEL_EXPLORER}


@router.get(
    "/ir/{stage}",
    response_model=SnapshotView | DifferenceView,
    responses={
        200: {
            "content": {
                **{each: {"schema": {"type": "string"}} for each in (_TEXT, _HTML, _DOT)},
                _MODEL_EXPLORER: {"schema": {"type": "object"}},
            }
        }
    },
)
async def get_ir(
    stage: str,
    request: Request,
    services: ServicesDep,
    id: Annotated[str | None, Query(description="A Compilation; default: the latest.")] = None,
    step: Annotated[int | None, Query(description="A step of that stage; default: its last.")] = None,
    function: Annotated[str | None, Query(description="One function; default: all.")] = None,
    diff: Annotated[
        str | None, Query(description="What differs from `previous`, another stage, or `<id>/<stage>`.")
    ] = None,
    offset: Annotated[int, Query(ge=0, description="Of a structured diff: the first change to list.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Of a structured diff: how many changes.")] = 500,
    expand: Annotated[bool, Query(description="Also the passes of TVM inside of the step, in the JSON.")] = False,
    format: Annotated[
        Literal["text", "json", "html", "dot", "model_explorer"] | None, Query(description="In place of `Accept`.")
    ] = None,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """The IR after the last step of a stage, or a result of the build; or what differs from another.

    TVMScript, LLVM IR or assembly as text or highlighted HTML; JSON with functions, operators, calls and graphs; the
    graphs for Graphviz or for Model Explorer.
    """
    check_parameters(request, "id", "step", "function", "diff", "offset", "limit", "expand", "format")
    available = (_JSON,) if expand else _REPRESENTATIONS if diff is None else (_TEXT, _JSON)
    representation = preferred(accept if format is None else _FORMATS[format], available)
    compilations = services.compilations
    compilation = compilations.latest() if id is None else compilations.get(id)
    if stage_of(stage) is Stage.ASM and compilation.state is State.SUCCEEDED:
        compilation = await services.examinations.with_assembly(compilation.id)
    found = find_step(compilation, stage_of(stage), step)
    snapshot = await compilations.snapshot(compilation.id, found.index)
    if expand:
        snapshot["inner"] = await services.examinations.expand(compilation.id, found.index)
    if function is not None:
        snapshot = _one_function(snapshot, function)
    if diff is not None:
        other, base = _find_base(compilations, compilation, found, diff)
        before = await compilations.snapshot(other.id, base.index)
        if function is not None:
            before = _one_function(before, function)
        sides = ((other, base), (compilation, found))
        return await asyncio.to_thread(_answer_diff, before, snapshot, sides, representation, offset, limit)
    origins: list[dict[str, Any]] = []
    if representation == _MODEL_EXPLORER:
        origins = (await compilations.snapshot(compilation.id, 0)).get("origins", [])
    return await asyncio.to_thread(_answer, compilation, found, snapshot, representation, origins)


def _answer(
    compilation: Compilation,
    found: Step,
    snapshot: dict[str, Any],
    representation: str,
    origins: list[dict[str, Any]],
) -> Response:
    headers = {"X-Compilation": compilation.id, "X-Step": str(found.index)}
    title = _name(compilation, found)
    if representation == _TEXT:
        return PlainTextResponse(snapshot["text"], headers=headers)
    if representation == _HTML:
        return HTMLResponse(to_html(snapshot, title, found.stage.value), headers={**headers, **STYLED})
    if representation == _DOT:
        return Response(to_dot(snapshot, title), media_type=_DOT, headers=headers)
    if representation == _MODEL_EXPLORER:
        return JSONResponse(to_model_explorer(snapshot, title, origins), media_type=_MODEL_EXPLORER, headers=headers)
    document = compilation.to_json()
    view = next(entry for entry in document["steps"] + document["results"] if entry["index"] == found.index)
    return JSONResponse({"id": compilation.id, "stage": found.stage.value, "step": view, **snapshot})


def stage_of(name: str) -> Stage:
    if name not in list(Stage):
        stages = [known.value for known in Stage]
        raise UnknownStage(
            f"There is no stage {name[:100]!r}. Stages: {', '.join(stages)}.",
            stage=name[:100],
            stages=stages,
            nearest=nearest(name, stages),
        )
    return Stage(name)


def _find_base(
    compilations: Compilations, compilation: Compilation, found: Step, diff: str
) -> tuple[Compilation, Step]:
    """The step to compare with: `previous`, a stage of the same Compilation, or `<id>/<stage>`."""
    if diff == "previous":
        if found.index == 0:
            raise UnknownStep("Step 0 is the import: there is no step before it.", id=compilation.id, step=0)
        return compilation, compilation.steps[found.index - 1]
    other, _, stage = diff.rpartition("/")
    base = compilations.get(other) if other else compilation
    return base, find_step(base, stage_of(stage), None)


def _answer_diff(
    before: dict[str, Any],
    after: dict[str, Any],
    sides: tuple[tuple[Compilation, Step], tuple[Compilation, Step]],
    representation: str,
    offset: int,
    limit: int,
) -> Response:
    (other, base), (compilation, found) = sides
    names = (_name(other, base), _name(compilation, found))
    result = difference(before, after, names)
    if representation == _TEXT:
        return PlainTextResponse(result.text or f"No difference between {names[0]} and {names[1]}.\n")
    end = offset + limit
    answer = {
        "from": {"id": other.id, "stage": base.stage.value, "step": base.index},
        "to": {"id": compilation.id, "stage": found.stage.value, "step": found.index},
        "same_model": other.model.sha256 == compilation.model.sha256,
        "identical": result.is_empty,
        "functions": {
            "same": result.same,
            "changed": result.changed,
            "added": result.added,
            "removed": result.removed,
            "renamed": [{"from": old, "to": new} for old, new in result.renamed],
        },
        "changes": [change.to_json() for change in result.changes[offset:end]],
        "total_changes": len(result.changes),
        "next_offset": end if end < len(result.changes) else None,
    }
    return JSONResponse(answer)


def _name(compilation: Compilation, step: Step) -> str:
    return f"{compilation.id[:8]}/{step.stage.value}[{step.index}]"


def find_step(compilation: Compilation, stage: Stage, index: int | None) -> Step:
    of_stage = [step for step in (*compilation.steps, *compilation.results) if step.stage is stage]
    if not of_stage:
        reached = list(dict.fromkeys(step.stage.value for step in (*compilation.steps, *compilation.results)))
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
    return {**snapshot, "text": functions[0]["text"], "functions": functions, "changes": None}


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
