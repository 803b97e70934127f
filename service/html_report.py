"""``report.html``: one Compilation as one file without scripts or network, to be read and attached to a bug report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from service.errors import JsonObject
from service.ir_diff import difference
from service.nouns import BUILD_STAGES, Limits, Step
from service.records import Compilation
from service.repro import request_of, versions_of
from service.version import VERSION

# What of the IR goes in: of one step, of its difference, and of all together; and what is highlighted, which makes six
# times as much of it and takes a second a megabyte.
STEP_CHARACTERS = 200_000
DIFF_CHARACTERS = 100_000
ALL_CHARACTERS = 4_000_000
HIGHLIGHTED_CHARACTERS = 1_000_000
# The comparison of two texts takes time with the square of what differs.
COMPARED_CHARACTERS = 1_000_000
MAX_ROWS = 200
MAX_NOTES = 20

_LEXERS = {"llvm": "llvm", "asm": "nasm", "vm": "text"}
_LIGHT, _DARK = "xcode", "github-dark"
_FIXED_MEMBERS = ("type", "title", "status", "detail")


def render(
    compilation: Compilation,
    snapshots: Iterator[JsonObject],
    limits: Limits,
    profile: JsonObject | None = None,
    profile_note: str | None = None,
) -> str:
    """The page. `snapshots` are those of all steps and results, one after the other; the profile may have been made.

    `profile_note` says why there is no profile though one was asked for.
    """
    document = compilation.to_json()
    problem = document["problem"] or {}
    versions = versions_of(compilation, limits)
    kernels = [] if profile is None else profile["kernels"]
    return _template().render(
        title=f"{compilation.model.filename}: {compilation.recipe.name or 'own passes'}",
        c=document,
        colours=Markup(_colours()),  # noqa: S704
        problem_members=[(name, _shown(value)) for name, value in problem.items() if name not in _FIXED_MEMBERS],
        passes=", ".join(spec.name for spec in compilation.recipe.passes[:MAX_ROWS]),
        request=_cut(json.dumps(request_of(compilation), indent=1), STEP_CHARACTERS),
        steps=list(_Steps(compilation).described(snapshots)),
        profile=profile,
        profile_note=profile_note,
        profile_left_out=len(kernels) > MAX_ROWS,
        kernels=kernels[:MAX_ROWS],
        versions=[("relaxd", VERSION), *versions["toolchain"].items(), *versions["machine"].items()],
        version=VERSION,
    )


class _Steps:
    """The steps as the template shows them, with as much of their IR as there is room for."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation
        self._steps = (*compilation.steps, *compilation.results)
        self._room = ALL_CHARACTERS
        self._to_highlight = HIGHLIGHTED_CHARACTERS

    def described(self, snapshots: Iterator[JsonObject]) -> Iterator[JsonObject]:
        """One entry a step. Of the Snapshots no more than two are held at once."""
        before: JsonObject | None = None
        for step, snapshot in zip(self._steps, snapshots, strict=True):
            entry = _facts(step)
            if not step.changed:
                entry["left_out"] = ["It is as after the step before."]
            else:
                self._add_ir(entry, step, before, snapshot)
            yield entry
            before = snapshot

    def _add_ir(self, entry: JsonObject, step: Step, before: JsonObject | None, snapshot: JsonObject) -> None:
        text = str(snapshot["text"])
        compared = "" if before is None or step.stage in BUILD_STAGES else _difference(before, snapshot)
        if compared is None:
            entry["left_out"].append(
                "What differs from the step before is left out: the texts are too long to compare."
            )
        elif compared:
            entry["diff"] = self._take(compared, DIFF_CHARACTERS, "diff", entry, "the differences", step)
        lexer = _LEXERS.get(step.stage.value, "python")
        entry["text"] = self._take(text, STEP_CHARACTERS, lexer, entry, "the text", step)

    def _take(self, text: str, limit: int, lexer: str, entry: JsonObject, what: str, step: Step) -> Markup | str:
        """The text, cut where it must be, which `entry` says then; highlighted where there is room for that."""
        most = min(limit, self._room)
        if len(text) > most:
            where = f"/ir/{step.stage.value}?id={self._compilation.id}&step={step.index}"
            said = f"the first {most:,} characters" if most else "none"
            entry["left_out"].append(f"Of {what}, {said} of {len(text):,} are shown; the server has all at {where}.")
        text = _cut(text, most)
        self._room -= len(text)
        if len(text) > self._to_highlight:
            return text
        self._to_highlight -= len(text)
        formatter = HtmlFormatter(style=_LIGHT, nowrap=True)
        return Markup(highlight(text, get_lexer_by_name(lexer, stripnl=False), formatter))  # noqa: S704


def _facts(step: Step) -> JsonObject:
    numbers = step.details.get("numbers") or {}
    outputs = numbers.get("outputs") or ()
    notes = list(step.notes)
    if len(notes) > MAX_NOTES:
        notes = [*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES} more"]
    changes = [f"{name.removeprefix('relax.')} {count:+d}" for name, count in step.figures.op_changes.items()]
    left = [f"and {len(changes) - MAX_NOTES} more"] if len(changes) > MAX_NOTES else []
    return {
        "index": step.index,
        "stage": step.stage.value,
        "name": step.pass_name or ("import" if step.index == 0 else "build"),
        "title": step.stage.value if step.pass_name is None else f"{step.stage.value}, {step.pass_name}",
        "changed": step.changed,
        "wall_ms": f"{step.wall_ms:.1f}",
        "rss": step.figures.peak_rss_bytes >> 20,
        "ops": ", ".join([*changes[:MAX_NOTES], *left]),
        "error": "" if step.error is None else _figure(step.error),
        "wrong": any(not output.get("passed", True) for output in outputs),
        "notes": notes,
        "left_out": [],
        "diff": "",
        "text": "",
    }


def _difference(before: JsonObject, after: JsonObject) -> str | None:
    """The unified text; None where it would take too long to find."""
    if len(before["text"]) + len(after["text"]) > COMPARED_CHARACTERS:
        return None
    return difference(before, after, ("before", "after")).text


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit]


def _shown(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 2000)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "" if value is None else str(value)


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, undefined=jinja2.ChainableUndefined
    )
    environment.filters["figure"] = _figure
    return environment.get_template("report.html")


@cache
def _colours() -> str:
    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in (_LIGHT, _DARK))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
