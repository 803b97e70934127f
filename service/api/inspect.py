"""POST /inspect and GET /operators: what a model is and what can be compiled, before anything is compiled."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from service import formats
from service.api.compile import MULTIPART, parse_request
from service.api.problems import check_parameters
from service.api.schemas import CompileRequest, InspectionView, OperatorsView
from service.api.state import ServicesDep
from service.api.upload import receive
from service.errors import InvalidInputsFile
from service.nouns import TensorSpec

router = APIRouter(tags=["inspect"])


@router.post("/inspect", response_model=InspectionView, openapi_extra=MULTIPART)
async def post_inspect(request: Request, services: ServicesDep) -> Response:
    """Looks at a model without compiling it: format, signature, parameters, operators, and what is not supported.

    It takes the same upload as POST /compile. Nothing is kept.
    """
    check_parameters(request)
    receiver = await receive(request, services.store.scratch, services.settings.limits)
    try:
        parts = receiver.parts
        fields = parse_request(parts["request"].file.read_bytes()) if "request" in parts else CompileRequest()
        found = await asyncio.to_thread(formats.recognise, parts["model"].file, fields.format)
        inputs = parts["inputs"].file if "inputs" in parts else None
        if inputs is not None and not formats.is_npz(inputs):
            raise InvalidInputsFile(
                "The part `inputs` is not an .npz archive. Write it with `numpy.savez(file, x=array)`."
            )
        declared = None
        if fields.inputs is not None:
            declared = tuple(TensorSpec(spec.name, tuple(spec.shape), spec.dtype) for spec in fields.inputs)
        report = await services.inspections.inspect(parts["model"].file, found, declared, inputs)
    finally:
        receiver.discard()
    return JSONResponse(report)


@router.get("/operators", response_model=OperatorsView)
async def get_operators(request: Request, services: ServicesDep) -> Response:
    """The ATen operators that are compiled, and those that PyTorch may write with these. docs/operators.md has both."""
    check_parameters(request)
    return JSONResponse(await services.inspections.operators())
