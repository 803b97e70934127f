"""What differs between two Snapshots: functions and bindings matched by what they compute, not by lines or names.

A pass renumbers variables and constants, so a comparison of lines shows differences that are none. Here the bindings of
two Relax functions are aligned by operator, attributes and type; an aligned binding is the same when its operands are
aligned, too. The alignment then renames the variables of one side, and what is left is what the pass did.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from service.errors import JsonObject

_BINDING = re.compile(r"^(\s*)([A-Za-z_]\w*)(: .+?)? = (.+)$")
_CONSTANT = re.compile(r'metadata\["[\w.]+"\]\[\d+\]')
_NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*(?![\w\"'(=])")
_HEADER = re.compile(r"def \w+\((.*)\)")
_PARAMETER = re.compile(r"([A-Za-z_]\w*): ")


# Positions of lines on both sides.
Pair = tuple[int | None, int | None]


@dataclass(frozen=True)
class _Line:
    """One line of a function. For a binding: the variable, its form with operands and constants left out, operands."""

    text: str
    variable: str | None
    form: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """One difference: a line that is only on one side, or, with both, a binding whose operands are others."""

    function: str
    before: str | None
    after: str | None

    def to_json(self) -> JsonObject:
        kind = "removed" if self.after is None else "added" if self.before is None else "changed"
        return {"function": self.function, "kind": kind, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class Difference:
    """Which functions are the same, added, removed, renamed (from, to) or changed, and each change of a line."""

    same: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]
    changes: tuple[Change, ...]
    text: str

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.renamed or self.changed)


def difference(before: JsonObject, after: JsonObject, names: tuple[str, str]) -> Difference:
    """From one Snapshot to another; `names` head the unified text."""
    old = {entry["name"]: entry["text"] for entry in before["functions"]}
    new = {entry["name"]: entry["text"] for entry in after["functions"]}
    renamed = _renamed(old, new)
    pairs = {name: name for name in old if name in new} | renamed
    same: list[str] = []
    changed: list[str] = []
    changes: list[Change] = []
    text: list[str] = []
    for name in sorted(old.keys() | (new.keys() - set(pairs.values()))):
        other = pairs.get(name) if name in old else name
        function_changes, unified = _compare(name, old.get(name), None if other is None else new[other])
        if function_changes:
            changes += function_changes
            text += [f"--- {names[0]} {name if name in old else ''}", f"+++ {names[1]} {other or ''}", *unified]
        if name in old and other is not None and other == name:
            (changed if function_changes else same).append(name)
    return Difference(
        tuple(same),
        tuple(sorted(new.keys() - set(pairs.values()))),
        tuple(sorted(old.keys() - set(pairs))),
        tuple(sorted(renamed.items())),
        tuple(changed),
        tuple(changes),
        "".join(f"{line.rstrip()}\n" for line in text),
    )


def _renamed(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """Functions that went on under another name, found by their bodies."""
    bodies: dict[str, list[str]] = {}
    for name in sorted(new.keys() - old.keys()):
        bodies.setdefault(_nameless(new[name]), []).append(name)
    renamed = {}
    for name in sorted(old.keys() - new.keys()):
        candidates = bodies.get(_nameless(old[name]))
        if candidates:
            renamed[name] = candidates.pop(0)
    return renamed


def _nameless(text: str) -> str:
    return re.sub(r"def \w+\(", "def (", text, count=1)


def _compare(name: str, before: str | None, after: str | None) -> tuple[list[Change], list[str]]:
    old, new = _lines(before or ""), _lines(after or "")
    pairs, replaced = _aligned(old, new)
    names = _mapping(old, new, pairs, replaced)
    changes: list[Change] = []
    unified: list[str] = []
    for i, j in pairs:
        if i is not None and j is not None:
            renamed = _rename(new[j].text, names)
            if _CONSTANT.sub("const", renamed) == _CONSTANT.sub("const", old[i].text):
                unified.append(f" {old[i].text}")
                continue
        if i is not None:
            unified.append(f"-{old[i].text}")
        if j is not None:
            unified.append(f"+{_rename(new[j].text, names)}")
        changes.append(
            Change(name, None if i is None else old[i].text.strip(), None if j is None else new[j].text.strip())
        )
    return changes, unified


def _lines(text: str) -> list[_Line]:
    lines = []
    known: set[str] = set()
    for line in text.splitlines():
        header = _HEADER.search(line)
        if header is not None:
            known.update(_PARAMETER.findall(header[1]))
        binding = _BINDING.match(line)
        if binding is None:
            # `return gv` and `R.output(gv)` name variables, too.
            operands = tuple(found for found in _NAME.findall(line) if found in known)
            lines.append(_Line(line, None, _form(_nameless(line), known), operands))
            continue
        indent, variable, annotation, value = binding.groups()
        operands = tuple(found for found in _NAME.findall(value) if found in known)
        lines.append(_Line(line, variable, f"{indent}{annotation or ''} = {_form(value, known)}", operands))
        known.add(variable)
    return lines


def _form(text: str, known: set[str]) -> str:
    return _NAME.sub(lambda found: "%" if found[0] in known else found[0], _CONSTANT.sub("const", text))


def _aligned(old: list[_Line], new: list[_Line]) -> tuple[list[Pair], list[Pair]]:
    """Positions that belong together, in order, None where a line stands on one side only; and of lines that were
    replaced, which took whose place.
    """
    matcher = difflib.SequenceMatcher(None, [line.form for line in old], [line.form for line in new], autojunk=False)
    pairs: list[Pair] = []
    replaced: list[Pair] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(range(i1, i2), range(j1, j2), strict=True)
            continue
        pairs += [(i, None) for i in range(i1, i2)] + [(None, j) for j in range(j1, j2)]
        # From the end: what the replaced lines gave is what their last one gave.
        replaced += zip(reversed(range(i1, i2)), reversed(range(j1, j2)), strict=False)
    return pairs, replaced


def _mapping(old: list[_Line], new: list[_Line], aligned: list[Pair], replaced: list[Pair]) -> dict[str, str]:
    """New variables to the old ones that they go on as. One that is new alone gives way where its name is taken."""
    mapping: dict[str, str] = {}
    for i, j in [*aligned, *replaced]:
        if i is None or j is None:
            continue
        mine, theirs = old[i].variable, new[j].variable
        if mine is not None and theirs is not None:
            mapping.setdefault(theirs, mine)
    taken = {line.variable for line in old} | set(mapping.values())
    for line in new:
        if line.variable is not None and line.variable not in mapping and line.variable in taken:
            mapping[line.variable] = f"{line.variable}_new"
    return mapping


def _rename(text: str, names: dict[str, str]) -> str:
    pattern = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*(?![\w\"'(])")
    return pattern.sub(lambda found: names.get(found[0], found[0]), text)
