"""Frames survive any split of the stream, and hostile ones are refused before anything is allocated for them."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire import MAGIC, Frame, FrameLimits, WireError, encode_head, read_frame, receive_frame, send_frame

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def encode(frame: Frame) -> bytes:
    return encode_head(frame) + b"".join(frame.blobs)


async def read_in_chunks(data: bytes, size: int) -> Frame | None:
    reader = asyncio.StreamReader()
    for start in range(0, len(data), size):
        reader.feed_data(data[start : start + size])
    reader.feed_eof()
    return await read_frame(reader, FrameLimits())


@given(
    st.dictionaries(st.text(max_size=8), json_values, max_size=4),
    st.lists(st.binary(max_size=64), max_size=4),
    st.integers(1, 50),
)
def test_a_frame_read_back_is_the_frame_that_was_written(body, blobs, size):
    frame = asyncio.run(read_in_chunks(encode(Frame(body, tuple(blobs))), size))
    assert frame is not None
    assert frame.body == body
    assert [bytes(blob) for blob in frame.blobs] == blobs


def test_workers_and_the_web_process_speak_the_same_frames():
    ours, theirs = socket.socketpair()
    big = bytes(range(256)) * 5000
    sender = threading.Thread(target=send_frame, args=(theirs, Frame({"a": 1}, (big, b"", b"x"))))
    sender.start()
    frame = receive_frame(ours, FrameLimits())
    sender.join()
    assert frame is not None
    assert [bytes(blob) for blob in frame.blobs] == [big, b"", b"x"]
    theirs.close()
    assert receive_frame(ours, FrameLimits()) is None
    ours.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "not a frame"),
        (MAGIC + struct.pack("<II", 2**31, 0), "JSON has 2147483648 bytes"),
        (MAGIC + struct.pack("<II", 2, 2**30), "blobs, the limit"),
        (MAGIC + struct.pack("<IIQ", 2, 1, 2**62) + b"{}", "blobs have"),
        (MAGIC + struct.pack("<IIQQ", 2, 2, 2**63, 2**63) + b"{}", "blobs have"),
        (MAGIC + struct.pack("<II", 2, 0) + b"[]", "not an object"),
        (MAGIC + struct.pack("<II", 3, 0) + b"{]}", "cannot be parsed"),
        (MAGIC + struct.pack("<II", 100_000, 0) + b"[" * 100_000, "cannot be parsed"),
        (MAGIC + struct.pack("<II", 9, 0) + b"{}", "went away"),
        (MAGIC[:3], "went away"),
    ],
)
def test_what_is_not_a_frame_within_limits_is_refused(data, words):
    with pytest.raises(WireError, match=words):
        asyncio.run(read_in_chunks(data, 7))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(WireError, match=words):
            receive_frame(ours, FrameLimits())


def test_a_nan_is_never_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_head(Frame({"x": float("nan")}))
