"""The frames that the web process and its workers exchange: a JSON object and raw blobs, never a pickle.

A frame is the magic ``RLXD``, the size of the JSON part and the number of blobs (both uint32, little-endian),
the size of each blob (uint64), the JSON part, and the blobs. Both ends treat what they read as hostile: sizes
are checked against limits before anything is allocated.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass

from service.errors import JsonObject

MAGIC = b"RLXD"
MAX_BLOBS = 4096
_HEAD = struct.Struct("<4sII")


class WireError(Exception):
    """The peer sent something that is not a frame within the limits, or went away inside one."""


@dataclass(frozen=True)
class Frame:
    """One message: a JSON object and the blobs that belong to it."""

    body: JsonObject
    blobs: tuple[bytes | memoryview, ...] = ()


@dataclass(frozen=True)
class FrameLimits:
    """The largest JSON part and the largest sum of blobs, in bytes, that a reader accepts."""

    json_bytes: int = 16 << 20
    blob_bytes: int = 1 << 30


def encode_head(frame: Frame) -> bytes:
    """All of the frame but its blobs, so that large blobs can be written without being copied."""
    body = json.dumps(frame.body, separators=(",", ":"), allow_nan=False).encode()
    sizes = struct.pack(f"<{len(frame.blobs)}Q", *(len(blob) for blob in frame.blobs))
    return _HEAD.pack(MAGIC, len(body), len(frame.blobs)) + sizes + body


def _check_head(head: bytes, limits: FrameLimits) -> tuple[int, int]:
    magic, json_size, blob_count = _HEAD.unpack(head)
    if magic != MAGIC:
        raise WireError("the peer sent something that is not a frame")
    if json_size > limits.json_bytes:
        raise WireError(f"a frame's JSON has {json_size} bytes, the limit is {limits.json_bytes}")
    if blob_count > MAX_BLOBS:
        raise WireError(f"a frame has {blob_count} blobs, the limit is {MAX_BLOBS}")
    return json_size, blob_count


def _check_sizes(packed: bytes, limits: FrameLimits) -> tuple[int, ...]:
    sizes = struct.unpack(f"<{len(packed) // 8}Q", packed)
    if sum(sizes) > limits.blob_bytes:
        raise WireError(f"a frame's blobs have {sum(sizes)} bytes, the limit is {limits.blob_bytes}")
    return sizes


def _decode_body(data: bytes) -> JsonObject:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame's JSON cannot be parsed: {error}") from error
    if not isinstance(body, dict):
        raise WireError("a frame's JSON is not an object")
    return body


async def read_frame(reader: asyncio.StreamReader, limits: FrameLimits) -> Frame | None:
    """The next frame, or None when the peer closed between frames. Raises WireError."""
    try:
        head = await reader.readexactly(_HEAD.size)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise WireError("the peer went away inside a frame") from error
    try:
        json_size, blob_count = _check_head(head, limits)
        sizes = _check_sizes(await reader.readexactly(8 * blob_count), limits)
        body = _decode_body(await reader.readexactly(json_size))
        return Frame(body, tuple([await reader.readexactly(size) for size in sizes]))
    except asyncio.IncompleteReadError as error:
        raise WireError("the peer went away inside a frame") from error


async def write_frame(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Writes one frame and waits until the transport has room again."""
    writer.write(encode_head(frame))
    for blob in frame.blobs:
        writer.write(blob)
    await writer.drain()


def receive_frame(sock: socket.socket, limits: FrameLimits) -> Frame | None:
    """Blocking form of `read_frame`, for workers."""
    head = _receive_exactly(sock, _HEAD.size, at_start=True)
    if head is None:
        return None
    json_size, blob_count = _check_head(bytes(head), limits)
    sizes = _check_sizes(bytes(_receive_exactly(sock, 8 * blob_count) or b""), limits)
    body = _decode_body(bytes(_receive_exactly(sock, json_size) or b""))
    return Frame(body, tuple([memoryview(_receive_exactly(sock, size) or b"") for size in sizes]))


def send_frame(sock: socket.socket, frame: Frame) -> None:
    """Blocking form of `write_frame`, for workers."""
    sock.sendall(encode_head(frame))
    for blob in frame.blobs:
        sock.sendall(blob)


def _receive_exactly(sock: socket.socket, size: int, at_start: bool = False) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    received = 0
    while received < size:
        count = sock.recv_into(view[received:])
        if count == 0:
            if at_start and received == 0:
                return None
            raise WireError("the peer went away inside a frame")
        received += count
    return data
