"""The progress bar: how far a Compilation is, and what is shown of it."""

from __future__ import annotations

import io

from relaxd.progress import doing, done, progress_bar, total
from relaxd.record import CompilationRecord
from rich.console import Console

from .fake_relaxd import compilation


def record(state: str, steps: int, **changes: object) -> CompilationRecord:
    return CompilationRecord.from_json({**compilation(state, steps), **changes})


def test_parts_are_the_import_the_passes_the_build_and_the_verification() -> None:
    passes = len(record("running", 0).recipe.passes)
    assert total(record("running", 0)) == passes + 3
    assert (doing(record("running", 0)), done(record("running", 0))) == ("import", 0)
    assert doing(record("running", 1)) == record("running", 0).recipe.passes[0].name
    assert done(record("running", 1)) == 1
    assert doing(record("running", passes + 1)) == "build"
    assert doing(record("queued", 0)) == "queued"
    assert done(record("succeeded", passes + 1)) == passes + 3


def test_a_terminal_sees_the_bar() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    with progress_bar(console) as tell:
        tell(record("running", 1))
    assert record("running", 1).recipe.passes[0].name in shown.getvalue()
