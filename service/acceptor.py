"""Takes new connections as fast as they come, also while the loop is busy with those that are there.

libuv takes one connection in each turn of its loop. Where a turn answers hundreds of clients, a new one would wait for
seconds in the kernel's queue, and a check of health with it. So the same sockets are watched once more, and of what
waits so many are taken at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Any, cast

import uvicorn

from service.http_protocol import GuardedProtocol

log = logging.getLogger(__name__)

# In one turn of the loop; what is beyond that leaves something to the other processes that watch the same socket.
MAX_AT_ONCE = 16
# How long it waits when the process or the machine has no descriptor left.
PAUSE_S = 0.5


class Acceptor:
    """Watches the listening sockets of a server that has started, until `close`. Belongs to the loop's thread."""

    def __init__(self, server: uvicorn.Server, listeners: Sequence[socket.socket]) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        # Descriptors of their own: the loop watches each once.
        self._listeners = [socket.socket(fileno=socket.dup(listener.fileno())) for listener in listeners]
        self._beginning: set[asyncio.Future[Any]] = set()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        for listener in self._listeners:
            listener.setblocking(False)
            self._watch(listener)

    def take_over(self, sock: socket.socket, first: bytes = b"") -> None:
        """Goes on with a connection, of which `first` was read already."""
        kind = cast(type[GuardedProtocol], self._server.config.http_protocol_class)
        state = {"server_state": self._server.server_state, "app_state": self._server.lifespan.state}
        protocol = kind(config=self._server.config, **state)
        protocol.begin_with(first)
        sock.setblocking(False)
        task = asyncio.ensure_future(self._loop.connect_accepted_socket(lambda: protocol, sock))
        self._beginning.add(task)
        task.add_done_callback(self._end_beginning)

    def close(self) -> None:
        """Takes no more; connections that were taken go on."""
        for pause in self._pauses.values():
            pause.cancel()
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners = []

    def _watch(self, listener: socket.socket) -> None:
        self._pauses.pop(listener, None)
        self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            for _ in range(MAX_AT_ONCE):
                sock, _ = listener.accept()
                self.take_over(sock)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("no connection can be taken for %g s: %s", PAUSE_S, error)
            self._loop.remove_reader(listener.fileno())
            self._pauses[listener] = self._loop.call_later(PAUSE_S, self._watch, listener)

    def _end_beginning(self, task: asyncio.Future[Any]) -> None:
        self._beginning.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a connection could not be begun: %s", error)
