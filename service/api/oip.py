"""The Open Inference Protocol v2 over HTTP: what unmodified clients of Triton and KServe speak."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse

from service.api.inference import InferenceHead, answer_by_route
from service.api.json_body import parse_object
from service.api.oip_body import HEADER_LENGTH
from service.api.problems import check_parameters
from service.api.state import Services, ServicesDep
from service.api.tensors import OIP_NAMES
from service.api.upload import read_body
from service.errors import CompilationNotReady, InvalidField, JsonObject
from service.nouns import TensorSpec
from service.publications import Servable
from service.version import VERSION

router = APIRouter(prefix="/v2", tags=["open inference protocol"])

MAX_REPLICAS = 64
EXTENSIONS = ("binary_tensor_data", "model_repository", "model_configuration", "statistics")
JsonHeader = Annotated[str | None, Header(alias=HEADER_LENGTH)]


@router.get("")
async def get_server(request: Request) -> JsonObject:
    """Server metadata."""
    check_parameters(request)
    return {"name": "relaxd", "version": VERSION, "extensions": list(EXTENSIONS)}


@router.get("/health/live")
async def get_live() -> JsonObject:
    """Whether the server answers."""
    return {"live": True}


@router.get("/health/ready")
async def get_ready(services: ServicesDep) -> Response:
    """Whether artifacts can be run: 200, or 400 while the workers start."""
    ready = services.pool.states().get("infer") == "ready"
    return JSONResponse({"ready": ready}, 200 if ready else 400)


@router.get("/models/stats")
async def get_all_stats(services: ServicesDep) -> JsonObject:
    """Statistics of all models that were asked for."""
    statistics, _ = await services.fronts.gather(services.statistics)
    return {"model_stats": statistics.all()}


@router.get("/models/{model}")
@router.get("/models/{model}/versions/{version}")
async def get_model(model: str, request: Request, services: ServicesDep, version: str | None = None) -> JsonObject:
    """Model metadata: -1 stands for a dimension that may have any size of its range."""
    check_parameters(request)
    found = services.publications.find(model, version)
    signature = found.signature
    return {
        "name": found.name,
        "versions": _versions(found, services),
        "platform": "tvm_relax",
        "inputs": [_metadata(spec) for spec in signature.inputs],
        "outputs": [_metadata(spec) for spec in signature.outputs],
    }


@router.get("/models/{model}/ready")
@router.get("/models/{model}/versions/{version}/ready")
async def get_model_ready(model: str, services: ServicesDep, version: str | None = None) -> JsonObject:
    """Whether the model can be run."""
    found = services.publications.find(model, version)
    return {"name": found.name, "ready": True}


@router.get("/models/{model}/config")
@router.get("/models/{model}/versions/{version}/config")
async def get_model_config(model: str, services: ServicesDep, version: str | None = None) -> JsonObject:
    """The part of Triton's model configuration that follows from the Signature."""
    found = services.publications.find(model, version)
    return {
        "name": found.name,
        "platform": "tvm_relax",
        "backend": "tvm",
        "max_batch_size": 0,
        "input": [_configuration(spec) for spec in found.signature.inputs],
        "output": [_configuration(spec) for spec in found.signature.outputs],
    }


@router.get("/models/{model}/stats")
@router.get("/models/{model}/versions/{version}/stats")
async def get_model_stats(model: str, services: ServicesDep, version: str | None = None) -> JsonObject:
    """How often the model was run, and how long that took."""
    found = services.publications.find(model, version)
    statistics, _ = await services.fronts.gather(services.statistics)
    return {"model_stats": [statistics.of(found.name, found.version)]}


@router.post("/models/{model}/infer")
@router.post("/models/{model}/versions/{version}/infer")
async def post_infer(
    model: str,
    request: Request,
    services: ServicesDep,
    version: str | None = None,
    header_length: JsonHeader = None,
) -> Response:
    """Runs a model on tensors as JSON or as raw bytes after it; the answer likewise, output by output."""
    check_parameters(request)
    headers = request.headers
    encoding, accept = headers.get("content-encoding"), headers.get("accept-encoding", "")
    return await answer_by_route(request, services, InferenceHead(model, version, header_length, encoding, accept))


@router.post("/repository/index")
async def post_index(request: Request, services: ServicesDep) -> list[JsonObject]:
    """All published models and their versions. ``{"ready": true}`` leaves out those that cannot be run."""
    body = await read_body(request, services.settings.limits.request_bytes)
    only_ready = b'"ready"' in body and b"true" in body
    index = []
    for name in services.publications.names():
        for entry in services.publications.describe(name)["versions"]:
            version = str(entry["version"])
            try:
                services.publications.find(name, version)
                state, reason = "READY", ""
            except CompilationNotReady as problem:
                state, reason = "UNAVAILABLE", problem.detail
            if state == "READY" or not only_ready:
                index.append({"name": name, "version": version, "state": state, "reason": reason})
    return index


@router.post("/repository/models/{model}/load")
async def post_load(model: str, request: Request, services: ServicesDep) -> JsonObject:
    """Loads the artifact of a model now, and not with its first request; ``{"parameters": {"replicas": 2}}`` in two."""
    body = await read_body(request, services.settings.limits.request_bytes)
    replicas = _replicas(body)
    found = services.publications.find(model)
    await services.sessions.preload(found.loadable, replicas)
    await services.fronts.load(found.loadable.key, replicas)
    return {}


@router.post("/repository/models/{model}/unload")
async def post_unload(model: str, request: Request, services: ServicesDep) -> JsonObject:
    """Ends the worker of a model when its requests are answered; the next request loads it again."""
    await read_body(request, services.settings.limits.request_bytes)
    key = services.publications.find(model).compilation.id
    services.sessions.unload(key)
    await services.fronts.unload(key)
    return {}


def _replicas(body: bytes) -> int | None:
    fields = parse_object(body, "The body") if body.strip() else {}
    parameters = fields.get("parameters") or {}
    if not isinstance(parameters, dict) or set(parameters) - {"replicas"}:
        raise InvalidField(
            "`parameters` may have `replicas` alone: a model's configuration and files are not replaced by loading it.",
            field="parameters",
        )
    replicas = parameters.get("replicas")
    if replicas is not None and (type(replicas) is not int or not 1 <= replicas <= MAX_REPLICAS):
        raise InvalidField(f"`parameters.replicas` must be from 1 to {MAX_REPLICAS}.", field="parameters.replicas")
    return replicas


def _versions(found: Servable, services: Services) -> list[str]:
    numbers = services.publications.versions(found.name)
    return [str(number) for number in sorted(numbers)] or [found.version]


def _metadata(spec: TensorSpec) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in spec.shape]
    return {"name": spec.name, "datatype": OIP_NAMES[spec.dtype], "shape": shape}


def _configuration(spec: TensorSpec) -> dict[str, Any]:
    dims = [size if isinstance(size, int) else -1 for size in spec.shape]
    return {"name": spec.name, "data_type": f"TYPE_{OIP_NAMES[spec.dtype]}", "dims": dims}
