"""GET /compile/{id}/provenance: from lines of the model to instructions, and back."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from service.api.ir import find_step, stage_of
from service.api.ir_schemas import ProvenanceView
from service.api.problems import check_parameters
from service.api.state import ServicesDep
from service.counterparts import Question, Shown, counterparts
from service.errors import InvalidField, StageNotReached
from service.records import Compilation

router = APIRouter(tags=["ir"])


@router.get("/compile/{id}/provenance", response_model=ProvenanceView)
async def get_provenance(
    id: str,
    request: Request,
    services: ServicesDep,
    node: Annotated[str | None, Query(description="Start at this node of the model.")] = None,
    module: Annotated[str | None, Query(description="Start at this module, and what is in it.")] = None,
    source: Annotated[str | None, Query(description="Start at source lines that contain this: `net.py:12`.")] = None,
    stage: Annotated[str | None, Query(description="Start in the IR of this stage: at `function`.")] = None,
    step: Annotated[int | None, Query(description="A step of that stage; default: its last.")] = None,
    function: Annotated[str | None, Query(description="Start at this function of that stage.")] = None,
    binding: Annotated[str | None, Query(description="Start at this binding of that function.")] = None,
    offset: Annotated[int, Query(ge=0, description="The first place to list.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many places to list.")] = 1000,
) -> Response:
    """The nodes of the model that something comes from, and everything at every stage that comes from them.

    Start at the model (`node`, `module`, `source`) or at a place (`stage` and `function`, perhaps `binding`); without
    either, all of it.
    """
    check_parameters(request, "node", "module", "source", "stage", "step", "function", "binding", "offset", "limit")
    compilations = services.compilations
    compilation = compilations.get(id)
    if (stage is None) != (function is None):
        missing = "function" if function is None else "stage"
        raise InvalidField("A place is named by `stage` and `function` together.", field=missing)
    if binding is not None and function is None:
        raise InvalidField("`binding` needs the `stage` and `function` that it stands in.", field="binding")
    index = None if stage is None else find_step(compilation, stage_of(stage), step).index
    question = Question(node, module, source, index, function, binding)
    steps = (*compilation.steps, *compilation.results)
    if not steps:
        raise StageNotReached(
            f"This compilation ({compilation.state.value}) has no IR yet.",
            id=compilation.id,
            state=compilation.state.value,
            stages=[],
        )
    shown: list[Shown] = [(step, await compilations.snapshot(compilation.id, step.index)) for step in steps]
    return await asyncio.to_thread(_answer, compilation, shown, question, offset, limit)


def _answer(compilation: Compilation, shown: list[Shown], question: Question, offset: int, limit: int) -> Response:
    origins, places, coverage = counterparts(shown, question)
    end = offset + limit
    answer = {
        "id": compilation.id,
        "origins": origins,
        "places": [place.to_json() for place in places[offset:end]],
        "total_places": len(places),
        "next_offset": end if end < len(places) else None,
        "coverage": coverage,
    }
    return JSONResponse(answer)
