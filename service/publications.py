"""Names for Compilations: each has versions, one of which answers; publishing is one transaction, as is going back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from service import keys
from service.compilations import Compilations
from service.errors import CompilationNotReady, InvalidField, JsonObject, UnknownCompilation, nearest
from service.host_cpu import missing_flags
from service.journal import Journal, JournalReader, PublishedVersion
from service.loading import Loadable
from service.nouns import Signature, State
from service.records import Artifact, Compilation
from service.serving_errors import CompilationPublished, CpuLacksFeatures, UnknownModel
from service.uninterrupted import uninterrupted

MAX_FOUND = 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Servable:
    """What a request for a model runs: the name and the version that it asked for, and the Compilation behind them."""

    name: str
    version: str
    compilation: Compilation
    artifact: Artifact
    signature: Signature
    loadable: Loadable
    # How its requests are read, by the bytes that they have in common: for those who read them.
    plans: dict[bytes, Any] = field(default_factory=dict, compare=False)


class Source(Protocol):
    """Where Compilations and their libraries are found: `Compilations`, or in another process what is recorded."""

    def get(self, key: str) -> Compilation:
        """A Compilation that the caller may see. Raises UnknownCompilation."""

    def shared(self, key: str) -> Compilation:
        """A Compilation, whoever has submitted it. Raises UnknownCompilation."""

    def library(self, artifact: Artifact) -> Path:
        """The file of an Artifact's library, checked. Raises StoreDamaged."""


class Finder:
    """Finds what answers for a name. Methods belong to the event loop's thread."""

    def __init__(self, journal: JournalReader, compilations: Source) -> None:
        self._reader = journal
        self._source = compilations
        # What was found since the journal changed last, by name, version and caller.
        self._found: dict[tuple[str, str | None, keys.Caller | None], Servable] = {}
        self._found_at = -1

    def names(self) -> list[str]:
        """All published names, sorted."""
        return self._reader.published_names()

    def find(self, name: str, version: str | None = None) -> Servable:
        """What answers for a published name, or for the id of a Compilation, whose only version is 1.

        Raises UnknownModel, CompilationNotReady.
        """
        changes = self._reader.changes
        if self._found_at != changes or len(self._found) > MAX_FOUND:
            self._found, self._found_at = {}, changes
        asked = (name, version, keys.current.get())
        if asked not in self._found:
            self._found[asked] = self._look_up(name, version)
        return self._found[asked]

    def _look_up(self, name: str, version: str | None) -> Servable:
        versions = self._reader.versions(name)
        if versions:
            wanted = next((each for each in versions if _is_wanted(each, version)), None)
            if wanted is None:
                raise self._unknown(name, version)
            return self._servable(name, str(wanted.number), self._source.shared(wanted.compilation))
        try:
            compilation = self._source.get(name)
        except UnknownCompilation as error:
            raise self._unknown(name) from error
        if version not in (None, "1"):
            raise self._unknown(name, version)
        return self._servable(name, "1", compilation)

    def _unknown(self, name: str, version: str | None = None) -> UnknownModel:
        names = self.names()
        if version is not None:
            return UnknownModel(f"The model {name[:100]!r} has no version {version[:20]!r}.", model=name[:100])
        near = nearest(name, names)
        hint = f" Did you mean {near[0]!r}?" if near else " GET /models lists the published ones."
        return UnknownModel(f"There is no model {name[:100]!r}.{hint}", model=name[:100], nearest=near)

    def _servable(self, name: str, version: str, compilation: Compilation) -> Servable:
        artifact, signature = compilation.artifact, compilation.signature
        if compilation.state is not State.SUCCEEDED or artifact is None or signature is None:
            why = "ended before the build" if compilation.state is State.SUCCEEDED else f"is {compilation.state.value}"
            raise CompilationNotReady(
                f"The compilation {why}, so there is nothing to run. GET /compile/{compilation.id} says more.",
                id=compilation.id,
                state=compilation.state.value,
            )
        lacking = missing_flags(artifact.manifest.get("cpu_flags", []))
        if lacking:
            raise CpuLacksFeatures(
                f"The library needs {', '.join(lacking)}, which the CPU of this server lacks. Compile the model here "
                "again, with `native` as its `target.cpu`.",
                id=compilation.id,
                flags=lacking,
            )
        key = compilation.id
        loadable = Loadable(
            key, signature, lambda: self._source.library(artifact), lambda: self._reader.get(key) is not None
        )
        return Servable(name, version, compilation, artifact, signature, loadable)


class Publications(Finder):
    """The published models. Methods belong to the event loop's thread."""

    def __init__(self, journal: Journal, compilations: Compilations) -> None:
        super().__init__(journal, compilations)
        self._journal = journal
        self._compilations = compilations

    def describe(self, name: str) -> JsonObject:
        """A published model with its versions, the newest first. Raises UnknownModel."""
        versions = self._journal.versions(name)
        if not versions:
            raise self._unknown(name)
        current = next(version for version in versions if version.current)
        return {
            "name": name,
            "version": current.number,
            "compilation": current.compilation,
            "versions": [
                {"version": each.number, "compilation": each.compilation, "published_at": each.published_at}
                for each in versions
            ],
        }

    async def publish(self, name: str, compilation: str) -> JsonObject:
        """Makes a Compilation the next version of `name`, and the one that answers.

        One that is the current version already stays it. Raises InvalidField, UnknownCompilation, CompilationNotReady.
        """
        if not _NAME.fullmatch(name) or _ID.fullmatch(name):
            raise InvalidField(
                f"A model's name is a letter or digit and up to 99 more, dots, underscores and dashes; {name[:120]!r} "
                "is not, or it looks like the id of a Compilation.",
                field="name",
            )
        self._servable(name, "1", self._compilations.get(compilation))
        current = next((each for each in self._journal.versions(name) if each.current), None)
        is_new = current is None or current.compilation != compilation
        if is_new and not await uninterrupted(self._journal.publish, name, compilation):
            # It was deleted since it was looked at.
            raise UnknownCompilation(f"No compilation has the id {compilation!r}.", id=compilation)
        return self.describe(name)

    async def go_back(self, name: str, version: int) -> JsonObject:
        """Lets another version of `name` answer. Raises UnknownModel."""
        if all(each.number != version for each in self._journal.versions(name)):
            raise self._unknown(name, str(version))
        await uninterrupted(self._journal.choose_version, name, version)
        return self.describe(name)

    async def withdraw(self, name: str) -> None:
        """Forgets the name and its versions; the Compilations stay. Raises UnknownModel."""
        self.describe(name)
        await uninterrupted(self._journal.withdraw, name)

    def check_deletable(self, compilation: str) -> None:
        """Raises CompilationPublished where the Compilation is a version of a model."""
        models = self._journal.published_as(compilation)
        if models:
            raise CompilationPublished(
                f"Compilation {compilation!r} is a version of {', '.join(models)}. DELETE /models/{models[0]} first.",
                models=models,
            )

    def versions(self, name: str) -> list[int]:
        """The numbers of a model's versions; none where it is not published."""
        return [version.number for version in self._journal.versions(name)]


def _is_wanted(version: PublishedVersion, wanted: str | None) -> bool:
    return version.current if wanted is None else str(version.number) == wanted
