"""What browsers are told about every answer, and what pages of others may not do with this server.

There is no CORS: no other page reads an answer. Nor may one send what changes something, as a form or a `fetch` without
preflight could; nor reach a server without keys under a name that it has pointed at this machine (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import respond
from service.errors import Problem
from service.serving_errors import CrossOrigin, MisdirectedRequest

# An answer of the API is data: nothing in it runs, loads or is framed. What is a page says more itself.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# For pages that we write, of what strangers have sent: styles inside of them, nothing else.
STYLED = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_HOST = re.compile(r"(?:\[([^]]*)\]|([^:]*))(?::\d+)?")
_SAFE = ("GET", "HEAD", "OPTIONS")


class Browsers:
    """Adds the headers that an answer lacks, and refuses what comes from pages of others."""

    def __init__(self, app: ASGIApp, *, local_only: bool) -> None:
        """With `local_only` the request must name this machine as its Host."""
        self._app = app
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._fault(scope)
        if problem is None:
            await self._app(scope, receive, send_with_headers)
        else:
            answer = respond(Request(scope, receive), problem, {"Connection": "close"})
            await answer(scope, receive, send_with_headers)

    def _fault(self, scope: Scope) -> Problem | None:
        found = {b"host": "", b"origin": "", b"sec-fetch-site": ""}
        for name, value in scope["headers"]:
            if name in found:
                found[name] = value.decode("latin-1")
        host = found[b"host"]
        if self._local_only and host and not is_local(host):
            return MisdirectedRequest(
                f"This server has no API keys and answers only to names of this machine, not to {host[:100]!r}. "
                "Ask for http://localhost, or let the operator make keys."
            )
        if scope["method"] not in _SAFE and _is_foreign(found[b"sec-fetch-site"], found[b"origin"], host):
            origin = found[b"origin"] or "another origin"
            return CrossOrigin(f"A page of {origin[:100]} sent this, and pages of others may change nothing here.")
        return None


def is_local(host: str) -> bool:
    """Whether a Host header names this machine: ``localhost``, a name below it, or a loopback address."""
    parts = _HOST.fullmatch(host.lower())
    name = "" if parts is None else parts[1] or parts[2]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_foreign(site: str, origin: str, host: str) -> bool:
    """Whether a browser says that another page sent it; what is no browser sends neither header."""
    if site:
        return site not in ("same-origin", "none")
    return bool(origin) and origin.partition("://")[2].lower() != host.lower()
