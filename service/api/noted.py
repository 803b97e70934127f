"""The outermost layer of the application: each request gets its id, and its line in the log."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.request_log import CLIENT_GONE, HEADER, RequestLog, RequestNote, current, request_id

_NAME = HEADER.lower().encode()


class Noted:
    """Notes each request, whatever the layers inside of it make of it."""

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value.decode("latin-1") for name, value in scope["headers"] if name == _NAME), None)
        note = scope[RequestNote.SCOPE] = RequestNote(request_id(given), scope["method"])
        # Never reset: the server runs each request in a context of its own, and what comes of an error is in it, too.
        current.set(note)
        status = CLIENT_GONE

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = note.id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            status = 500
            raise
        finally:
            note.path = getattr(scope.get("route"), "path", None)
            parameters = scope.get("path_params", {})
            if note.model is None and (model := parameters.get("model")) is not None:
                note.model = str(model)[:100]
            self._log.note(note, status)
