"""Completes FastAPI's OpenAPI document with what it cannot see: multipart parts, bodies read raw, Problems."""

from __future__ import annotations

from typing import Any

from service.api.problems import MEDIA_TYPE
from service.api.schemas import CompileRequest, InferRequest, PassRequest, ProblemView

_REF = "#/components/schemas/{model}"


def complete(schema: dict[str, Any]) -> dict[str, Any]:
    """Adds the schemas of bodies that the routes parse themselves, and the Problem answer to every operation."""
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    for model in (CompileRequest, InferRequest, PassRequest, ProblemView):
        own = model.model_json_schema(ref_template=_REF)
        components.update(own.pop("$defs", {}))
        components[model.__name__] = own
    components["Pass"] = components.pop("PassRequest")
    components["Problem"] = components["ProblemView"]
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    problem = {
        "description": "A Problem; docs/errors.md lists all types.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}},
    }
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
    return schema
