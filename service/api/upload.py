"""A multipart body, streamed to disk part by part: counted against its limits and hashed on the way."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import BodyTooLarge, MalformedRequest, MissingPart, Problem, StorageFull, UnknownField, nearest
from service.full_disk import FULL_DISK
from service.leftovers import remove
from service.nouns import Limits

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_HEADER_BYTES = 16 << 10
MAX_PARTS = 16


@dataclass(frozen=True)
class Part:
    """One received part: a file in the scratch folder."""

    file: Path
    sha256: str
    bytes: int
    filename: str


@dataclass
class _OpenPart:
    name: str
    filename: str
    limit: int
    file: Path
    out: IO[bytes]
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    bytes: int = 0


class Receiver:
    """Collects the parts of one multipart body into files. The caller takes them, or calls `discard`."""

    def __init__(self, scratch: Path, limits: dict[str, int]) -> None:
        self.parts: dict[str, Part] = {}
        self.complete = False
        self._scratch = scratch
        self._limits = limits
        self._headers: dict[str, bytes] = {}
        self._name = b""
        self._value = b""
        self._open: _OpenPart | None = None

    def callbacks(self) -> MultipartCallbacks:
        """What the parser calls."""
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_part_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }

    def discard(self) -> None:
        """Removes all files of this body."""
        if self._open is not None:
            # It may fail once more to write what it has not written yet.
            with contextlib.suppress(OSError):
                self._open.out.close()
            remove(self._open.file)
        remove(*(part.file for part in self.parts.values()))

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._name.decode("latin-1").lower()] = self._value
        self._name = self._value = b""

    def _on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._headers.get("content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or not name:
            raise MalformedRequest("A part has no `Content-Disposition: form-data; name=…`.")
        if name not in self._limits:
            known = ", ".join(f"`{part}`" for part in self._limits)
            raise UnknownField(
                f"The body has an unknown part {name[:100]!r}. It takes the parts {known}.",
                field=name[:100],
                nearest=nearest(name, self._limits),
            )
        if name in self.parts:
            raise MalformedRequest(f"The part `{name}` was sent more than once.")
        filename = options.get(b"filename", b"").decode("utf-8", "replace")
        descriptor, path = tempfile.mkstemp(prefix="upload-", dir=self._scratch)
        out = os.fdopen(descriptor, "wb")
        self._open = _OpenPart(name, Path(filename).name[:255], self._limits[name], Path(path), out)

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._open
        if part is None:
            return
        part.bytes += end - start
        if part.bytes > part.limit:
            raise too_large(f"The part `{part.name}`", part.limit)
        chunk = memoryview(data)[start:end]
        part.out.write(chunk)
        part.digest.update(chunk)

    def _on_part_end(self) -> None:
        part = self._open
        if part is None:
            return
        part.out.close()
        self.parts[part.name] = Part(part.file, part.digest.hexdigest(), part.bytes, part.filename)
        self._open = None

    def _on_end(self) -> None:
        self.complete = True


def too_large(what: str, limit: int) -> Problem:
    """The Problem for something over its limit in bytes."""
    return BodyTooLarge(
        f"{what} is larger than the limit of {limit} bytes. Send a smaller one, or let the operator raise the limit.",
        limit_bytes=limit,
    )


async def receive(request: Request, scratch: Path, limits: Limits, *, needs_model: bool = True) -> Receiver:
    """Receives the parts ``model``, ``request`` and ``inputs`` of POST /compile; `model` is missing only where it may.

    Raises MalformedRequest, MissingPart, UnknownField, BodyTooLarge; nothing stays on disk then.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise MalformedRequest(
            "POST /compile takes multipart/form-data with a part `model`. With curl: -F model=@model.pt2.",
            content_type=request.headers.get("content-type"),
        )
    by_part = {"model": limits.upload_bytes, "request": limits.request_bytes, "inputs": limits.upload_bytes}
    whole = sum(by_part.values()) + MAX_PARTS * MAX_HEADER_BYTES
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > whole:
        raise too_large("The body", whole)
    receiver = Receiver(scratch, by_part)
    try:
        parser = MultipartParser(boundary, receiver.callbacks(), max_header_size=MAX_HEADER_BYTES)
        await _feed(parser, request.stream(), whole)
        if not receiver.complete:
            raise MalformedRequest("The multipart body ends before its closing boundary.")
        if needs_model and "model" not in receiver.parts:
            raise MissingPart("The body has no part `model`. With curl: -F model=@model.pt2.", part="model")
    except FormParserError as error:
        receiver.discard()
        raise MalformedRequest(f"The multipart body cannot be parsed: {error}.") from error
    except OSError as error:
        receiver.discard()
        if error.errno in FULL_DISK:
            raise StorageFull("The server's disk has no room for the upload. Send it again later.") from error
        raise
    except BaseException:
        receiver.discard()
        raise
    return receiver


async def _feed(parser: MultipartParser, chunks: AsyncIterator[bytes], limit: int) -> None:
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        if received > limit:
            raise too_large("The body", limit)
        parser.write(chunk)
    parser.finalize()


async def read_body(request: Request, limit: int) -> bytes:
    """A whole body that is small enough to be held. Raises BodyTooLarge."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large("The body", limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large("The body", limit)
    return bytes(body)
