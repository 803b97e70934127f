"""Messages between web processes: in order, with descriptors, also when nobody reads for a while, and their end."""

from __future__ import annotations

import asyncio
import os
import socket

from service.channel import Channel, from_memory, in_memory


def run(scenario) -> None:
    async def with_pair() -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        await asyncio.wait_for(scenario(left, right), 20)

    asyncio.run(with_pair())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_messages_come_in_order_with_what_is_too_large_for_a_packet():
    async def scenario(left, right):
        got: list = []
        mine = Channel(left, lambda message, fds: None, lambda: None)
        theirs = Channel(
            right, lambda message, fds: got.append((message, [from_memory(each) for each in fds])), lambda: None
        )
        before = open_files()
        data = os.urandom(1 << 20)
        for number in range(2000):
            descriptors = [in_memory(data)] if number % 500 == 0 else []
            mine.send({"number": number}, descriptors)
            for each in descriptors:
                os.close(each)
        while len(got) < 2000:
            await asyncio.sleep(0.001)
        assert [message["number"] for message, _ in got] == list(range(2000))
        assert [data_ for _, data_ in got if data_] == [[data]] * 4
        assert open_files() == before
        mine.close()
        theirs.close()

    run(scenario)


def test_the_end_of_one_is_told_to_the_other_once_and_sending_then_does_nothing():
    async def scenario(left, right):
        ends: list[str] = []
        mine = Channel(left, lambda *_: None, lambda: ends.append("mine"))
        theirs = Channel(right, lambda *_: None, lambda: ends.append("theirs"))
        mine.close()
        mine.close()
        mine.send({"op": "x"})
        while not theirs.closed:
            await asyncio.sleep(0.001)
        theirs.send({"op": "x"})
        assert ends == ["mine", "theirs"]

    run(scenario)
