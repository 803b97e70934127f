"""Runs the application on uvicorn, and says where it listens."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any, cast

import uvicorn

from service.api.state import Services
from service.http_protocol import GuardedProtocol

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn's server, which prints its address when it is ready: with port 0 nobody else knows it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._adopting: set[asyncio.Future[Any]] = set()

    def serve_forever(self) -> int:
        """Serves until SIGTERM or SIGINT; returns the exit code."""
        self.run()
        return 0 if self.started else 1

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening, and then the fronts, which take connections from the same sockets."""
        await super().startup(sockets)
        services = self._services()
        if self.started and services is not None:
            listeners = [sock.fileno() for server in self.servers for sock in server.sockets]
            services.fronts.start(listeners, self._adopt)

    def _services(self) -> Services | None:
        services: Services | None = getattr(getattr(self.config.app, "state", None), "services", None)
        return services

    def _adopt(self, sock: socket.socket, first: bytes) -> None:
        """Goes on with a connection that a front has taken, at the bytes that it has read and not answered."""
        state = {"server_state": self.server_state, "app_state": self.lifespan.state}
        kind = cast(type[GuardedProtocol], self.config.http_protocol_class)
        protocol = kind(config=self.config, **state)
        protocol.begin_with(first)
        sock.setblocking(False)
        task = asyncio.ensure_future(asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, sock))
        self._adopting.add(task)
        task.add_done_callback(self._end_adopting)

    def _end_adopting(self, task: asyncio.Future[Any]) -> None:
        self._adopting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a connection could not be taken over: %s", error)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shuts down cleanly, and lets the process end by itself: uvicorn would raise the signal once more."""
        services = self._services()
        if services is not None:
            # First: requests that wait for a Compilation are answered, instead of being cut off at the end.
            await services.compilations.close()
            # While they end, the fronts may still hand over connections.
            await services.fronts.stop()
        await super().shutdown(sockets)
        self._captured_signals.clear()

    def _log_started_message(self, listeners: object) -> None:
        super()._log_started_message(listeners)  # type: ignore[arg-type]
        for server in self.servers:
            for sock in server.sockets:
                sys.stdout.write(f"relaxd listens on {_shown(sock)}\n")
        sys.stdout.flush()


def end_with_stdin() -> None:
    """Has this process end by SIGTERM when its standard input does."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def _shown(sock: socket.socket) -> str:
    if sock.family is socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
