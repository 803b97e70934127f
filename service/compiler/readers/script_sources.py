"""From a line of a TorchScript archive's code to the line of Python that its author wrote."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from typing import Any

from service.compiler.readers.inert_pickle import Call

_Range = tuple[int, str, int, str]  # byte offset in the code, file, line, text of the line


class ScriptSources:
    """The code files of an archive by name, each with the table that PyTorch keeps of where its parts come from."""

    def __init__(self, files: Mapping[str, tuple[str, Any]]) -> None:
        """The table is what the inert reader gave, and may be anything."""
        self._files = files
        self._tables: dict[str, list[_Range]] = {}

    def locate(self, file: str, line: int) -> str:
        """``FILE:LINE: CODE`` of the author's source, or of the archive's own code where that is not known."""
        text, _ = self._files.get(file, ("", None))
        lines = text.splitlines(keepends=True)
        if not 0 < line <= len(lines):
            return f"{file}:{line}"
        start = sum(len(each) for each in lines[: line - 1])
        # The code is ASCII, so characters are bytes.
        found = self._range(file, start, start + len(lines[line - 1]))
        if found is None:
            return f"{file}:{line}: {lines[line - 1].strip()}"[:300]
        _, source, number, code = found
        return f"{source.rpartition('/')[2]}:{number}: {code.strip()}"[:300]

    def assignment(self, attribute: str) -> str | None:
        """The line, in the form of `locate`, that sets an attribute of a module first."""
        wanted = re.compile(rf"\s*self\.{re.escape(attribute)}\s*=[^=]")
        for _, table in self._files.values():
            for source, first_line, text in _sources(table):
                for number, line in enumerate(text.split("\n"), first_line):
                    if wanted.match(line):
                        return f"{source.rpartition('/')[2]}:{number}: {line.strip()}"[:300]
        for file, (text, _) in self._files.items():
            for number, line in enumerate(text.splitlines(), 1):
                if wanted.match(line):
                    return self.locate(file, number)
        return None

    def _range(self, file: str, start: int, end: int) -> _Range | None:
        """The first entry of the line that has a source, or the last one before the line."""
        if file not in self._tables:
            try:
                self._tables[file] = _read_table(self._files[file][1])
            except Exception:  # noqa: BLE001  a damaged table costs the author's line numbers, nothing else
                self._tables[file] = []
        table = self._tables[file]
        first = bisect.bisect_left(table, start, key=lambda entry: entry[0])
        for entry in table[first:]:
            if entry[0] >= end:
                break
            if entry[1]:
                return entry
        return table[first - 1] if first and table[first - 1][1] else None


def _sources(table: Any) -> list[tuple[str, int, str]]:
    """The author's functions that a table knows: file, first line, text."""
    found: dict[tuple[str, int, str], None] = {}
    try:
        kind, texts, ranges = table
        for _, ((pieces, file, first_line), _, _), _ in ranges if kind == "FORMAT_WITH_STRING_TABLE" else ():
            indexes = pieces.arguments[0] if isinstance(pieces, Call) else pieces
            found[str(texts[file]), int(first_line), "".join(texts[index] for index in indexes)] = None
    except Exception:  # noqa: BLE001  a damaged table costs the author's line numbers, nothing else
        return []
    return [source for source in found if source[0]]


def _read_table(table: Any) -> list[_Range]:
    kind, texts, ranges = table
    if kind != "FORMAT_WITH_STRING_TABLE":
        return []
    entries: list[_Range] = []
    for offset, ((pieces, file, first_line), start, _), _ in ranges:
        indexes = pieces.arguments[0] if isinstance(pieces, Call) else pieces
        source = "".join(texts[index] for index in indexes)
        before = source[:start]
        number = before.count("\n")
        lines = source.split("\n")
        entries.append((int(offset), str(texts[file]), int(first_line) + number, lines[number]))
    return sorted(entries, key=lambda entry: entry[0])
