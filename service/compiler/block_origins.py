"""Which nodes of the model each block of a fused kernel comes from.

FuseTIR writes the blocks of the functions that a group calls one after another. So a kernel that was a group one step
before has their blocks in the order of the calls, whose origins are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from service.errors import JsonObject

Origins: TypeAlias = frozenset[int]
_BLOCK = re.compile(r'^(?P<indent>\s*)with T\.sblock\("(?P<name>(?!root")[^"]*)"\):')


class BlockOrigins:
    """The blocks of all kernels after the latest step, with their origins where those are finer than the kernel's."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._origins: dict[str, list[Origins]] = {}

    def follow(self, entries: Iterable[JsonObject], groups: Mapping[str, list[tuple[str, Origins]]]) -> None:
        """Goes on to the next step. `groups` has of each Relax function before it what it calls, with the origins."""
        names: dict[str, list[str]] = {}
        origins: dict[str, list[Origins]] = {}
        for entry in entries:
            if entry.get("kind") != "tensorir":
                continue
            name = entry["name"]
            names[name] = [found["name"] for found in map(_BLOCK.match, entry["text"].splitlines()) if found]
            known = self._origins.get(name) if names[name] == self._names.get(name) else None
            if known is None and name in groups:
                known = [each for callee, each in groups[name] for _ in self._names.get(callee, ())]
            if known is not None and len(known) == len(names[name]):
                origins[name] = known
        self._names, self._origins = names, origins

    def of(self, entry: JsonObject) -> list[JsonObject]:
        """The blocks of a kernel: name, first and last line in the kernel's text, origins. Empty where not known."""
        known = self._origins.get(entry["name"])
        if known is None:
            return []
        lines = entry["text"].splitlines()
        starts = [number for number, line in enumerate(lines) if _BLOCK.match(line)]
        blocks: list[JsonObject] = []
        for start, origins in zip(starts, known, strict=True):
            first, last = _region(lines, start, starts)
            name = self._names[entry["name"]][len(blocks)]
            blocks.append({"name": name, "first_line": first + 1, "last_line": last + 1, "origins": sorted(origins)})
        return blocks

    def state(self) -> tuple[dict[str, list[str]], dict[str, list[Origins]]]:
        """What `restore` goes back to; none of it changes later."""
        return self._names, self._origins

    def restore(self, state: tuple[dict[str, list[str]], dict[str, list[Origins]]]) -> None:
        """Goes on as if the latest step were that of `state`."""
        self._names, self._origins = state


def _region(lines: list[str], start: int, starts: list[int]) -> tuple[int, int]:
    """The lines of a block, with the loops around it that hold no other block."""
    first, last = start, _end(lines, start)
    for above in range(start - 1, -1, -1):
        if _indent(lines[above]) >= _indent(lines[first]):
            continue
        end = _end(lines, above)
        if not lines[above].lstrip().startswith("for ") or any(above < each <= end for each in starts if each != start):
            break
        first, last = above, end
    return first, last


def _end(lines: list[str], head: int) -> int:
    """The last line that is indented deeper than `head`."""
    end = head
    while end + 1 < len(lines) and _indent(lines[end + 1]) > _indent(lines[head]):
        end += 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
