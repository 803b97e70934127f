"""POST /infer: inputs to a compiled Artifact, outputs back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from service.api.inference import InferenceHead, answer_by_route
from service.api.oip_body import HEADER_LENGTH
from service.api.problems import check_parameters
from service.api.schemas import InferResponse
from service.api.state import ServicesDep

router = APIRouter(tags=["infer"])


@router.post(
    "/infer",
    response_model=InferResponse,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/InferRequest"}},
                "application/x-npy": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
)
async def post_infer(
    request: Request,
    services: ServicesDep,
    header_length: Annotated[str | None, Header(alias=HEADER_LENGTH)] = None,
) -> Response:
    """Runs an Artifact. `model` is the name of a published model, or the id of a Compilation that succeeded.

    With a `.npy` file as the body, the model is the query parameter `model`.
    """
    check_parameters(request, "model")
    headers = request.headers
    head = InferenceHead(
        header_length=header_length,
        encoding=headers.get("content-encoding"),
        accept_encoding=headers.get("accept-encoding", ""),
        query_model=request.query_params.get("model"),
    )
    return await answer_by_route(request, services, head)
