"""`relaxd ir`, `diff`, `profile` and `bisect`: looking into a Compilation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.syntax import Syntax
from rich.text import Text

from relaxd.bisection import Bisection
from relaxd.cli.session import ApiKey, AsJson, Id, Session, Url, fail, session
from relaxd.cli.side_by_side import side_by_side
from relaxd.cli.words import read_point, read_sizes
from relaxd.client import Compilation
from relaxd.connection import DEFAULT_URL
from relaxd.report import text_diff

_LEXERS = {"llvm": "llvm", "asm": "nasm", "vm": "text"}


def ir(
    compilation: Id,
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="import, fusion, ..., tir, llvm, asm.")],
    step: Annotated[int | None, typer.Option(help="A step of the stage; without it the last.")] = None,
    function: Annotated[str | None, typer.Option("--function", "-f", help="One function.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, html, dot or model_explorer.")] = "text",
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """The IR after a stage, or what the build made of it."""
    with session(url, api_key, as_json) as opened:
        found = opened.resolve(compilation)
        if as_json:
            snapshot = opened.client.snapshot(found, stage, step, function)
            functions = {entry.name: entry.text for entry in snapshot.functions}
            opened.show(
                {
                    "id": found,
                    "stage": stage,
                    "step": snapshot.step.index,
                    "text": snapshot.text,
                    "functions": functions,
                }
            )
            return
        text = opened.client.ir(found, stage, step, function, form)
        if form == "text" and opened.console.is_terminal:
            opened.console.print(Syntax(text, _LEXERS.get(stage, "python"), background_color="default"), soft_wrap=True)
            return
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def diff(
    compilation: Id,
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A stage, or a step's index.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="A stage, or a step's index.")],
    other: Annotated[str | None, typer.Option("--of", help="AFTER is of this other Compilation.")] = None,
    unified: Annotated[bool, typer.Option("--unified", "-u", help="As a patch, not side by side.")] = False,
    context: Annotated[int, typer.Option(min=0, help="Equal lines around what differs.")] = 3,
    full: Annotated[bool, typer.Option("--full", help="All equal lines.")] = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """What differs between two steps, side by side."""
    with session(url, api_key, as_json) as opened:
        left = opened.client.get(opened.resolve(compilation))
        right = left if other is None else opened.client.get(opened.resolve(other))
        texts = _text(left, before), _text(right, after)
        labels = (before, after) if other is None else (f"{left.id[:8]} {before}", f"{right.id[:8]} {after}")
        patch = text_diff(*texts, *labels)
        if unified and not as_json:
            sys.stdout.write(patch and patch + "\n")
            return
        document = {"before": before, "after": after, "identical": not patch, "diff": patch}
        if not patch:
            opened.show(document, "nothing differs")
            return
        opened.show(document, side_by_side(*texts, labels, None if full else context))


def _text(compilation: Compilation, point: str) -> str:
    place = read_point(point)
    if isinstance(place, str):
        return compilation.ir(place)
    stage = next((step.stage for step in (*compilation.steps, *compilation.results) if step.index == place), None)
    if stage is None:
        fail(f"there is no step {place}: the Compilation has {len(compilation.steps)}, counted from 0")
    return compilation.ir(stage, place)


def profile(
    compilation: Id,
    runs: Annotated[int | None, typer.Option(min=1, max=1000, help="How many runs to time.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Sizes for symbols: batch:8,length:128.")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Where the time goes, kernel by kernel."""
    with session(url, api_key, as_json) as opened:
        given = None if sizes is None else read_sizes(sizes)
        found = opened.client.profile(opened.resolve(compilation), runs=runs, sizes=given)
        opened.show(found.raw, found)


def bisect(
    compilation: Id,
    symptom: Annotated[str, typer.Option(help="auto, wrong or slow.")] = "auto",
    against: Annotated[str | None, typer.Option(help="For slow: a quicker Compilation of the same model.")] = None,
    factor: Annotated[float | None, typer.Option(help="For slow: by how much slower is slow.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long to look.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the smaller model goes, a .pt2.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the end.")] = 600.0,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Which step goes wrong, which pass of TVM in it, and a smaller model that shows it."""
    with session(url, api_key, as_json) as opened:
        found_id = opened.resolve(compilation)
        done = opened.client.bisect(
            found_id,
            symptom=symptom,
            against=None if against is None else opened.resolve(against),
            factor=factor,
            seconds=seconds,
            on_progress=lambda state: _progress(opened, state),
            wait_s=wait,
        )
        if output is not None and done.reduced is not None:
            output.write_bytes(opened.client.reduced_model(found_id))
        opened.show(done.raw, _finding(done))


def _progress(opened: Session, state: Bisection) -> None:
    if not state.ended and not opened.as_json:
        opened.progress.print(Text(f"{state.attempts:>4} attempts  {state.doing or ''}", style="dim"))


def _finding(done: Bisection) -> Group:
    found, lines = done.found, []
    if found is None:
        lines.append(Text(f"{done.state}: nothing found in {done.attempts} attempts"))
    else:
        where = f"{found.kind} at step {found.step}, {found.pass_name or ('import' if found.step == 0 else 'build')}"
        inner = f", in TVM's {found.inner_pass}" if found.inner_pass else ""
        lines += [Text(where + inner, style="bold red"), Text(found.message)]
    lines += [Text(note, style="dim") for note in done.notes]
    if done.reduced is None:
        return Group(*lines)
    size = f"{done.reduced.nodes} nodes, of {done.reduced.nodes_before or '?'} before:"
    return Group(*lines, Text(size), Syntax(done.reduced.code, "python", background_color="default"))
