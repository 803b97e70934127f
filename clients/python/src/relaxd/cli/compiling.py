"""`relaxd compile`, `show` and `inspect`: from a file to a Compilation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from relaxd.calls import OnRecord, OnStep
from relaxd.cli.session import ApiKey, AsJson, Id, Session, Url, session
from relaxd.cli.words import read_base, read_input, read_passes
from relaxd.client import Compilation
from relaxd.connection import DEFAULT_URL
from relaxd.local import LOCAL
from relaxd.nouns import Step, TensorSpec
from relaxd.progress import progress_bar


def compile_file(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A .pt2, TorchScript or FX file.")
    ] = None,
    passes: Annotated[
        str | None, typer.Option("--passes", "-p", help="A preset, names with commas, a JSON list, or @FILE of one.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="End after the last pass of this stage; nothing is built.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check the numbers after every step.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show each step when it is done.")] = False,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="Declare an input: x=batch,784:float32. May be repeated.")
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="An .npz of example inputs by name.")
    ] = None,
    special_values: Annotated[str | None, typer.Option(help="fail or report.")] = None,
    threads: Annotated[int | None, typer.Option(min=0, help="Threads of one inference; 0 for all cores.")] = None,
    cpu: Annotated[str | None, typer.Option(help="native, or the name of an LLVM CPU.")] = None,
    base: Annotated[str | None, typer.Option("--from", help="Go on after ID:STEP; FILE may be left out.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="The worker waits for a next Compilation like it.")] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the end.")] = 600.0,
    local: Annotated[bool, typer.Option("--local", help="Without a server, as --url local.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the library's archive.")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Compile a model; show its steps, and how far its numbers are from PyTorch's."""
    if file is None and base is None:
        raise typer.BadParameter("give a FILE, or --from ID:STEP", param_hint="FILE")
    with session(LOCAL if local else url, api_key, as_json) as opened:
        presets = [] if passes is None else [recipe.name for recipe in opened.client.recipes()]
        target = {name: value for name, value in (("threads", threads), ("cpu", cpu)) if value is not None}
        start = None if base is None else read_base(base)
        with _watched(opened) as (on_step, on_record):
            done = opened.client.compile(
                file,
                passes=None if passes is None else read_passes(passes, presets),
                verify="every_step" if verify else "artifact",
                special_values=special_values,
                inputs=None if inputs is None else [read_input(text) for text in inputs],
                example_inputs=None if examples is None else dict(np.load(examples, allow_pickle=False)),
                target=target or None,
                until=until,
                base=None if start is None else (opened.resolve(start[0]), start[1]),
                keep=keep,
                on_step=on_step if watch else None,
                on_record=on_record,
                wait_s=wait,
            )
        shown = list(described(done))
        if output is not None:
            shown.append(Text(f"written to {done.download(output)}"))
        opened.show(done.raw, *(shown[1:] if watch else shown))


@contextlib.contextmanager
def _watched(opened: Session) -> Iterator[tuple[OnStep, OnRecord | None]]:
    """A function for each step, and where stderr is a terminal one for a progress bar."""

    def on_step(step: Step) -> None:
        error = "" if step.error is None else f"  error {step.error:.1e}"
        changed = "" if step.changed else "  (unchanged)"
        name = f"{step.index:>4}  {step.stage:<9} {step.pass_name or '(import)':<28}"
        text = f"{name} {step.wall_ms:8.1f} ms{error}{changed}"
        to = opened.progress if opened.as_json else opened.console
        to.print(Text(text, style="" if step.changed else "dim"), soft_wrap=True)

    if not opened.progress.is_terminal:
        yield on_step, None
        return
    with progress_bar(opened.progress) as on_record:
        yield on_step, on_record


def described(compilation: Compilation) -> list[RenderableType]:
    """The table of steps, then a line each: numbers, Signature, id."""
    lines: list[RenderableType] = [compilation.stages.__rich__()]
    verification = compilation.verification
    if verification is not None:
        lines.append(Text(verification.verdict, style="green" if verification.passed else "red"))
    if compilation.signature is not None:
        gives = ", ".join(map(_spec, compilation.signature.outputs))
        lines.append(Text(f"({', '.join(map(_spec, compilation.signature.inputs))}) -> {gives}"))
    lines.append(Text(f"{compilation.state} {compilation.id}", style="bold"))
    return lines


def _spec(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"


def show(compilation: Id = "last", url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """A Compilation as it stands: steps, numbers, and the problem of one that failed."""
    with session(url, api_key, as_json) as opened:
        found = opened.client.get(opened.resolve(compilation))
        problem = [] if found.problem is None else [Text(str(found.problem), style="red")]
        opened.show(found.raw, *described(found), *problem)


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A model file.")],
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """What a model is, without compiling it: Signature, operators, and each that is not supported."""
    with session(url, api_key, as_json) as opened:
        found = opened.client.inspect(file)
        table = Table(box=None, pad_edge=False)
        for heading in ("operator", "uses", "supported"):
            table.add_column(heading)
        unsupported = {entry.operator: entry for entry in found.unsupported}
        for name, count in found.operators.items():
            table.add_row(name, str(count), f"no: {unsupported[name].hint}" if name in unsupported else "yes")
        head = f"{found.format}, {found.parameters or 0} parameters"
        opened.show(found.raw, Text(head, style="bold"), table)
    if found.unsupported:
        raise typer.Exit(1)
