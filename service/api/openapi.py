"""Completes FastAPI's OpenAPI document with what it cannot see: multipart parts, bodies read raw, Problems, passes."""

from __future__ import annotations

from typing import Any

from service import pass_context
from service.api.bisect_schemas import BisectRequest
from service.api.problems import MEDIA_TYPE, OIP
from service.api.schemas import CompileRequest, InferRequest, ProblemView
from service.catalogue import Catalogue, PassInfo

_OIP_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_REF = "#/components/schemas/{model}"


def complete(schema: dict[str, Any], catalogue: Catalogue | None) -> dict[str, Any]:
    """Adds the schemas of bodies that the routes parse themselves, and the Problem answer to every operation.

    Without a Catalogue (the compile worker has not started yet) a pass is any name with any options.
    """
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    for model in (CompileRequest, InferRequest, BisectRequest, ProblemView):
        own = model.model_json_schema(ref_template=_REF)
        components.update(own.pop("$defs", {}))
        components[model.__name__] = own
    components["Problem"] = components["ProblemView"]
    properties = components["CompileRequest"]["properties"]
    properties["passes"] |= _passes(catalogue)
    properties["pass_context"]["anyOf"] = [pass_context.SCHEMA, {"type": "null"}]
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    problem = {
        "description": "A Problem; docs/errors.md lists all types.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}},
    }
    error = {
        "description": "What is wrong, as the Open Inference Protocol says it.",
        "content": {"application/json": {"schema": _OIP_ERROR}},
    }
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = error if path.startswith(OIP) else problem
    return schema


def _passes(catalogue: Catalogue | None) -> dict[str, Any]:
    if catalogue is None:
        name: dict[str, Any] = {"type": "string"}
        recipe, entries = name, [{"type": "object"}]
    else:
        name = {"enum": list(catalogue.passes)}
        recipe, entries = {"enum": list(catalogue.recipes)}, [_entry(info) for info in catalogue.passes.values()]
    return {"anyOf": [recipe, {"type": "array", "items": {"anyOf": [name, recipe, *entries]}}, {"type": "null"}]}


def _entry(info: PassInfo) -> dict[str, Any]:
    return {
        "type": "object",
        "title": info.name,
        "description": info.summary,
        "required": ["name"],
        "additionalProperties": False,
        "properties": {"name": {"const": info.name}, "options": info.options_schema()},
    }
