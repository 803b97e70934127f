"""Messages with descriptors between the web processes of a server: JSON in packets of a SOCK_SEQPACKET pair.

Both ends are trusted. What is large travels in a memfd beside its message, so that no packet is too large and no end
waits for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from service.errors import JsonObject

MAX_PACKET = 65536
MAX_DESCRIPTORS = 2


class Channel:
    """One end. For the event loop's thread.

    `on_message` gets each message and its descriptors, which are its own to close; `on_end` is called once, when the
    other end is gone.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[JsonObject, list[int]], None],
        on_end: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._on_message = on_message
        self._on_end = on_end
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._receive)
        self.closed = False

    def send(self, message: JsonObject, descriptors: Sequence[int] = ()) -> None:
        """Sends a message with copies of `descriptors`, now or when there is room; to nobody where it is closed."""
        if self.closed:
            return
        packet = json.dumps(message).encode()
        if not self._unsent and self._send_now(packet, descriptors):
            return
        if not self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._send_rest)
        self._unsent.append((packet, [os.dup(each) for each in descriptors]))

    def _send_now(self, packet: bytes, descriptors: Sequence[int]) -> bool:
        """Whether there is nothing left to do."""
        try:
            socket.send_fds(self._socket, [packet], descriptors)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
        return True

    def _send_rest(self) -> None:
        while self._unsent and self._send_now(*self._unsent[0]):
            if self._unsent:
                _close_all(self._unsent.popleft()[1])
        if not self._unsent and not self.closed:
            self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        while not self.closed:
            try:
                packet, descriptors, _, _ = socket.recv_fds(self._socket, MAX_PACKET, MAX_DESCRIPTORS)
            except BlockingIOError:
                return
            except OSError:
                packet, descriptors = b"", []
            if not packet:
                self.close()
                return
            self._on_message(json.loads(packet), list(descriptors))

    def close(self) -> None:
        """Closes this end; the other one notices."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for _, descriptors in self._unsent:
            _close_all(descriptors)
        self._unsent.clear()
        self._on_end()


def _close_all(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        with contextlib.suppress(OSError):
            os.close(each)


def in_memory(data: bytes | bytearray) -> int:
    """A memfd with `data`, to be sent and closed. Raises OSError."""
    descriptor = os.memfd_create("relaxd-message", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    return descriptor


def from_memory(descriptor: int) -> bytes:
    """What `in_memory` has put into a memfd, which is closed. Raises OSError."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read()
