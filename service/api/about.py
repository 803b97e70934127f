"""What the server offers and how it is: the Catalogue, problem types, health."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from service.api.problems import check_parameters
from service.api.schemas import HealthView, PassesView, RecipesView
from service.api.state import ServicesDep
from service.errors import NotFound, all_problems
from service.version import VERSION

router = APIRouter(tags=["about"])


@router.get("/passes", response_model=PassesView)
async def get_passes(request: Request, services: ServicesDep) -> Response:
    """Every pass, with its stage, documentation, an example and the JSON Schema of its options."""
    check_parameters(request)
    catalogue = await services.compilations.catalogue()
    return JSONResponse({"passes": [info.to_json() for info in catalogue.passes.values()]})


@router.get("/recipes", response_model=RecipesView)
async def get_recipes(request: Request, services: ServicesDep) -> Response:
    """The presets: names for lists of passes."""
    check_parameters(request)
    catalogue = await services.compilations.catalogue()
    recipes = [
        {**info.to_json(), "default": info.name == catalogue.default_recipe} for info in catalogue.recipes.values()
    ]
    return JSONResponse({"recipes": recipes})


@router.get("/problems/{slug}", response_class=PlainTextResponse)
async def get_problem(slug: str, request: Request) -> Response:
    """What a problem type means and what to do; the `type` of every Problem leads here."""
    check_parameters(request)
    for problem in all_problems():
        if problem.slug == slug:
            return PlainTextResponse(f"{problem.title} ({problem.status} {problem.slug})\n\n{problem.__doc__}\n")
    raise NotFound(f"There is no problem type {slug[:100]!r}.", path=request.url.path)


@router.get("/healthz", response_model=HealthView)
async def get_health(request: Request, services: ServicesDep) -> Response:
    """200 as long as the server answers; `status` says whether workers can be started."""
    check_parameters(request)
    zygotes = services.pool.states()
    status = "ok" if all(state == "ready" for state in zygotes.values()) else "starting"
    if "failed" in zygotes.values():
        status = "degraded"
    return JSONResponse(
        {
            "status": status,
            "version": VERSION,
            "zygotes": zygotes,
            "compilations": services.compilations.counts(),
            "sessions": services.sessions.loaded(),
            "sandbox": services.sandbox,
            "limits": services.settings.limits.to_json(),
        }
    )
