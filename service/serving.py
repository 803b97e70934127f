"""Runs the application on uvicorn, and says where it listens."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

import uvicorn

from service.acceptor import Acceptor
from service.api.state import Services


class Server(uvicorn.Server):
    """uvicorn's server, which prints its address when it is ready: with port 0 nobody else knows it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._acceptor: Acceptor | None = None

    def serve_forever(self) -> int:
        """Serves until SIGTERM or SIGINT; returns the exit code."""
        self.run()
        return 0 if self.started else 1

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening, and then the fronts, which take connections from the same sockets."""
        await super().startup(sockets)
        if not self.started:
            return
        listeners = [sock for server in self.servers for sock in server.sockets]
        self._acceptor = Acceptor(self, listeners)
        services = self._services()
        if services is not None:
            services.fronts.start([sock.fileno() for sock in listeners], self._acceptor.take_over)

    def _services(self) -> Services | None:
        services: Services | None = getattr(getattr(self.config.app, "state", None), "services", None)
        return services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shuts down cleanly, and lets the process end by itself: uvicorn would raise the signal once more."""
        services = self._services()
        if services is not None:
            # First: requests that wait for a Compilation are answered, instead of being cut off at the end.
            await services.compilations.close()
            # While they end, the fronts may still hand over connections.
            await services.fronts.stop()
        if self._acceptor is not None:
            self._acceptor.close()
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
