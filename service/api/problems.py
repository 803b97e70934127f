"""The one translation from errors to HTTP: every error leaves as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from service.errors import (
    BodyTooLarge,
    InternalError,
    InvalidField,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    Problem,
    UnknownField,
    nearest,
)
from service.request_log import HEADER, current_id
from service.statistics import Statistics

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


def install(app: FastAPI) -> None:
    """Makes every error of `app` a Problem."""
    app.add_exception_handler(Problem, _answer_problem)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(Exception, _answer_unforeseen)


# Under this path the errors are those of the Open Inference Protocol.
OIP = "/v2"
_OIP_STATUSES = (401, 403, 404, 405, 413, 415, 421, 429)


def respond(request: Request, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The answer for a Problem of a request that came by a route."""
    services = getattr(request.app.state, "services", None)
    return render(request.url.path, None if services is None else services.statistics, problem, headers)


def render(
    path: str, statistics: Statistics | None, problem: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer for a Problem, with an ``instance`` that the log has too for errors of ours, and its request's id.

    Below /v2 it is ``{"error": detail}``, and 400 for what is the caller's fault and has no status of its own there.
    """
    if statistics is not None:
        statistics.problems[problem.slug] += 1
    instance = f"urn:uuid:{uuid.uuid4()}"
    # Not for each refusal of a server that has enough to do (503): they are counted, and must be cheap.
    if problem.status >= 500 and problem.status != 503:
        log.error("%s: %s %s", instance, problem.slug, problem.detail, exc_info=problem)
    all_headers = dict(headers or {})
    if "retry_after_s" in problem.extensions:
        all_headers["Retry-After"] = str(problem.extensions["retry_after_s"])
    if isinstance(problem, (BodyTooLarge, MalformedRequest)):
        # Part of the body may still be on its way; it must not be read as the next request.
        all_headers["Connection"] = "close"
    if path == OIP or path.startswith(f"{OIP}/"):
        status = problem.status if problem.status >= 500 or problem.status in _OIP_STATUSES else 400
        return JSONResponse({"error": problem.detail}, status, all_headers)
    content = {**problem.to_json(), "instance": instance}
    if identifier := current_id():
        content["request_id"] = identifier
    return JSONResponse(content, problem.status, all_headers, media_type=MEDIA_TYPE)


async def _answer_problem(request: Request, error: Exception) -> Response:
    return respond(request, error if isinstance(error, Problem) else InternalError("The server met an error."))


async def _answer_validation(request: Request, error: Exception) -> Response:
    found = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    name = ".".join(str(part) for part in found.get("loc", ())[1:])
    value = request.query_params.get(name)
    return respond(
        request, InvalidField(f"`{name}` is {value!r}: {str(found.get('msg', 'invalid')).lower()}.", field=name)
    )


async def _answer_http(request: Request, error: Exception) -> Response:
    path = request.url.path
    if not isinstance(error, HTTPException):
        return respond(request, InternalError("The server met an error."))
    if error.status_code == 405:
        allowed = _allowed_methods(request)
        return respond(
            request,
            MethodNotAllowed(f"{path} does not take {request.method}; it takes {allowed}.", allowed=allowed),
            {"Allow": allowed},
        )
    if error.status_code == 404:
        return respond(request, NotFound(f"There is nothing at {path}. /openapi.json lists all paths.", path=path))
    return respond(request, MalformedRequest(f"The request was refused: {error.detail}."))


def _allowed_methods(request: Request) -> str:
    """Of all routes with this path: the framework's own answer names those of the first only."""
    methods: set[str] = set()
    for route in request.app.state.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    # The caller hung up while its body was read: no fault of ours, and nobody there to answer.
    return Response(status_code=400)


async def _answer_unforeseen(request: Request, error: Exception) -> Response:
    log.error("%s %s met an error that was not foreseen", request.method, request.url.path, exc_info=error)
    return respond(
        request,
        InternalError("The server met an error that was not foreseen; its log has it under `instance`."),
        # It is sent from outside of the layer that adds the id to all other answers; then the error is raised once
        # more, for which uvicorn closes the connection.
        {HEADER: current_id(), "Connection": "close"},
    )


def check_parameters(request: Request, *known: str) -> None:
    """Refuses query parameters that the route does not have. Raises UnknownField."""
    for name in request.query_params:
        if name not in known:
            takes = f"it takes {', '.join(f'`{other}`' for other in known)}" if known else "it takes none"
            raise UnknownField(
                f"{request.url.path} has no query parameter `{name[:100]}`; {takes}.",
                field=name[:100],
                nearest=nearest(name, known),
            )
