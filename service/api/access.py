"""Who may call what, where the server asks for API keys: before any route, and before the body is read."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service import keys
from service.api.problems import respond
from service.errors import Problem
from service.keys import Caller, Keys
from service.rates import Rates
from service.request_log import current
from service.serving_errors import NotAuthenticated, NotPermitted

# The page and what it is made of, health for load balancers, and what the API is: nothing of anybody's.
_PUBLIC = re.compile(
    r"/|/web/.*|/healthz|/v2/health/(?:live|ready)|/problems/.*|/openapi\.json|/passes|/recipes|/operators"
)
# The first that fits by method and path.
_SCOPES = (
    ("POST", re.compile(r"/compile.*|/inspect"), "compile"),
    ("DELETE", re.compile(r"/compile.*"), "compile"),
    ("POST", re.compile(r"/infer|/v2/models/.*/infer"), "infer"),
    ("GET", re.compile(r"/v2.*"), "infer"),
    ("POST", re.compile(r"/models/.*|/v2/repository/models/.*"), "admin"),
    ("DELETE", re.compile(r"/models/.*"), "admin"),
    ("GET", re.compile(r"/metrics"), "admin"),
)


class Gate:
    """Who may come in, whichever door it is: keys, scopes and rates. For the event loop's thread."""

    def __init__(self, known: Keys | None, rates: Rates) -> None:
        """`known` are the keys; None where none are asked for."""
        self._keys = known
        self._rates = rates

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked for a key."""
        return self._keys is None

    def admit(self, authorization: str, method: str, path: str) -> Caller | None:
        """The caller of a request, which counts for its rate; None where the gate is open.

        Raises NotAuthenticated, NotPermitted, RateLimited.
        """
        if self._keys is None:
            return None
        kind, _, key = authorization.partition(" ")
        caller = self._keys.find(key.strip()) if kind.lower() == "bearer" else None
        if caller is None:
            what = "The API key is not known" if key else "This server asks for an API key"
            raise NotAuthenticated(f"{what}. Send `Authorization: Bearer <key>`; the operator makes keys.")
        method = "GET" if method == "HEAD" else method
        needed = next((scope for of, paths, scope in _SCOPES if of == method and paths.fullmatch(path)), "read")
        if not caller.may(needed):
            raise NotPermitted(
                f"The key {caller.name!r} has not the scope {needed!r} that {method} {path} needs.", scope=needed
            )
        self._rates.take(caller.name, needed)
        return caller


class Access:
    """The gate before all routes. The caller is known to all that the request does (`keys.current`)."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if self._gate.is_open or scope["type"] != "http" or _PUBLIC.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            caller = self._gate.admit(request.headers.get("authorization", ""), request.method, request.url.path)
        except Problem as problem:
            headers = {"WWW-Authenticate": 'Bearer realm="relaxd"'} if problem.status == 401 else {}
            # The body was not read: what is left of it must not be taken for the next request.
            await respond(request, problem, {**headers, "Connection": "close"})(scope, receive, send)
            return
        note = current.get()
        if note is not None and caller is not None:
            note.caller = caller.name
        token = keys.current.set(caller)
        try:
            await self._app(scope, receive, send)
        finally:
            keys.current.reset(token)
