"""A progress bar of rich, in terminals and notebooks: the import, each pass, the build, the verification."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from relaxd.calls import OnRecord
from relaxd.record import CompilationRecord

# Beside the passes: the import, the build, the verification.
_OTHERS = 3


@contextlib.contextmanager
def progress_bar(console: Console) -> Iterator[OnRecord]:
    """Shows a bar on `console` until the end of the block; it is told of the Compilation each time that is known."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("sending", total=None)

        def tell(record: CompilationRecord) -> None:
            bar.update(task, description=doing(record), completed=done(record), total=total(record))

        yield tell


def total(record: CompilationRecord) -> int:
    """How many parts there are; without a build for one that ends before."""
    until = record.raw["recipe"].get("until")
    return len(record.recipe.passes) + (1 if until else _OTHERS)


def done(record: CompilationRecord) -> int:
    """How many of them are done."""
    if record.state == "succeeded":
        return total(record)
    return len(record.steps) + (1 if record.results else 0)


def doing(record: CompilationRecord) -> str:
    """What is at work, in a few words."""
    if record.ended or record.state == "queued":
        return record.state
    if not record.steps:
        return "import"
    if len(record.steps) <= len(record.recipe.passes):
        return record.recipe.passes[len(record.steps) - 1].name
    return "verify" if record.results else "build"
