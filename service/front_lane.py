"""The connections of a front: the fast lane, and behind it no parser, but the first web process."""

from __future__ import annotations

import os
from typing import Any

from service.channel import Channel, in_memory
from service.fast_lane import FastLane

# How often it is looked whether a client has read its last answer.
DRAIN_S = 0.01


class FrontLane(FastLane):
    """One connection. What the fast lane does not take goes to the first process together with the connection."""

    # In the lifespan's state: the way to the first process.
    CHANNEL = "channel"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._channel: Channel = self.app_state[self.CHANNEL]

    def _to_parser(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        # Nothing more is read here, whatever has arrived meanwhile.
        self.flow.pause_reading()
        if self.transport.get_write_buffer_size():
            # The last answer goes out first, or the reader's deadline ends it.
            self._answering = True
            self._later[:0] = data
            if self._sending is None:
                self._watch_reader()
            self.loop.call_later(DRAIN_S, self._go_on, b"")
            return
        memory = in_memory(data)
        try:
            client = self.transport.get_extra_info("socket").fileno()
            self._channel.send({"op": "connection"}, [client, memory])
        finally:
            os.close(memory)
        # It lives on in the first process.
        self.transport.abort()
