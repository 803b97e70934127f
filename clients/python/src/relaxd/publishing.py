"""Published models and compiled libraries to take away, as frozen values, and the calls for them, as Flows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from relaxd.nouns import JsonObject
from relaxd.sending import Flow, Request, read_answer, send


@dataclass(frozen=True)
class PublishedVersion:
    """A version of a published model, and the id of its Compilation."""

    version: int
    compilation: str
    published_at: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PublishedVersion:
        return cls(int(value["version"]), value["compilation"], value["published_at"])


@dataclass(frozen=True)
class PublishedModel:
    """A published model: the version that answers now, and all versions, the newest first."""

    name: str
    version: int
    compilation: str
    versions: tuple[PublishedVersion, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PublishedModel:
        versions = tuple(PublishedVersion.from_json(entry) for entry in value["versions"])
        return cls(value["name"], int(value["version"]), value["compilation"], versions)


@dataclass(frozen=True)
class Artifact:
    """The library of a Compilation. `manifest` has its Signature, CPU, toolchain and tolerances."""

    library_sha256: str
    manifest: JsonObject

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Artifact:
        return cls(value["library_sha256"], dict(value["manifest"]))


def models() -> Flow[list[PublishedModel]]:
    """All published models."""
    answer = yield from send(Request("GET", "/models"))
    return read_answer(answer, lambda value: [PublishedModel.from_json(entry) for entry in value["models"]])


def publish(name: str, compilation: str | int) -> Flow[PublishedModel]:
    """The model, after a Compilation (an id) became its next version, or an earlier one (a number) answers again."""
    asked = {"version": compilation} if isinstance(compilation, int) else {"compilation": compilation}
    headers = {"Content-Type": "application/json"}
    answer = yield from send(Request("POST", _path("models", name), headers=headers, body=json.dumps(asked).encode()))
    return read_answer(answer, PublishedModel.from_json)


def withdraw(name: str) -> Flow[None]:
    """Withdraws a name and its versions."""
    yield from send(Request("DELETE", _path("models", name)))


def artifact(model: str) -> Flow[Artifact]:
    """The manifest."""
    answer = yield from send(Request("GET", _path("artifacts", model)))
    return read_answer(answer, Artifact.from_json)


def download(model: str, path: str | os.PathLike[str]) -> Flow[Path]:
    """Where the archive was written: `path`, or a file in it when it is a folder. No half archive is left."""
    answer = yield from send(Request("GET", _path("artifacts", model) + "/archive"))
    target = Path(path)
    if target.is_dir():
        target /= f"{Path(model).name}.zip"
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(answer.content)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _path(collection: str, name: str) -> str:
    return f"/{collection}/{quote(name, safe='')}"
