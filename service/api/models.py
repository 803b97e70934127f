"""/models: names for Compilations, with versions."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.api.json_body import parse_object
from service.api.problems import check_parameters
from service.api.state import ServicesDep
from service.api.upload import read_body
from service.audit import audit
from service.errors import InvalidField, JsonObject

router = APIRouter(prefix="/models", tags=["models"])


class PublishRequest(BaseModel):
    """Either a Compilation, which becomes the next version, or the number of an earlier version."""

    model_config = ConfigDict(extra="forbid", strict=True)
    compilation: str | None = Field(default=None, description="The id of a Compilation that succeeded.")
    version: int | None = Field(default=None, ge=1, description="A version to go back to.")


PUBLISH_SCHEMA = PublishRequest.model_json_schema()


class VersionView(BaseModel):
    version: int
    compilation: str
    published_at: str


class ModelVersionsView(BaseModel):
    """A published model: the version that answers, and all versions, the newest first."""

    name: str
    version: int
    compilation: str
    versions: list[VersionView]


class ModelsView(BaseModel):
    models: list[ModelVersionsView]


@router.get("", response_model=ModelsView)
async def list_models(request: Request, services: ServicesDep) -> Response:
    """All published models."""
    check_parameters(request)
    publications = services.publications
    return JSONResponse({"models": [publications.describe(name) for name in publications.names()]})


@router.get("/{name}", response_model=ModelVersionsView)
async def get_published(name: str, request: Request, services: ServicesDep) -> Response:
    """One published model and its versions."""
    check_parameters(request)
    return JSONResponse(services.publications.describe(name))


@router.post(
    "/{name}",
    response_model=ModelVersionsView,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": PublishRequest.model_json_schema()}},
        }
    },
)
async def post_model(name: str, request: Request, services: ServicesDep) -> Response:
    """Publishes a Compilation as the next version of a model, or goes back to a version. No request fails meanwhile."""
    check_parameters(request)
    body = await read_body(request, services.settings.limits.request_bytes)
    asked = _parse(parse_object(body, "The body"))
    if asked.compilation is not None:
        document = await services.publications.publish(name, asked.compilation)
    else:
        document = await services.publications.go_back(name, asked.version or 0)
    audit("publish", name, f"version {document['version']} is {document['compilation']}")
    return JSONResponse(document)


@router.delete("/{name}", status_code=204)
async def delete_model(name: str, request: Request, services: ServicesDep) -> Response:
    """Withdraws the name and its versions. The Compilations stay."""
    check_parameters(request)
    await services.publications.withdraw(name)
    audit("withdraw", name)
    return Response(status_code=204)


def _parse(fields: JsonObject) -> PublishRequest:
    try:
        asked = PublishRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidField(f"`{where[:100]}` is invalid: {first['msg'].lower()}.", field=where[:100]) from error
    if (asked.compilation is None) == (asked.version is None):
        raise InvalidField("The body must have either `compilation` or `version`.", field="compilation")
    return asked
