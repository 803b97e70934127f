"""The stages of a Compilation: a tuple of names that shows itself as the table of steps."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from relaxd.nouns import Step
from relaxd.report import RIGHT_ALIGNED, stage_rows, stage_table

if TYPE_CHECKING:
    from rich.table import Table


class Stages(tuple[str, ...]):
    """The names of the stages without repetition; `steps` are what is shown by print, rich and notebooks."""

    steps: tuple[Step, ...]

    def __new__(cls, steps: Iterable[Step]) -> Stages:
        """The stages of `steps`."""
        steps = tuple(steps)
        stages = super().__new__(cls, dict.fromkeys(step.stage for step in steps))
        stages.steps = steps
        return stages

    def __getnewargs__(self) -> tuple[tuple[Step, ...]]:
        return (self.steps,)

    def __str__(self) -> str:
        return stage_table(self.steps)

    def __rich__(self) -> Table:
        from rich.table import Table

        headings, *rows = stage_rows(self.steps)
        table = Table(box=None, pad_edge=False)
        for heading in headings:
            table.add_column(heading, justify="right" if heading in RIGHT_ALIGNED else "left", no_wrap=True)
        for step, row in zip(self.steps, rows, strict=True):
            table.add_row(*row, style=None if step.changed else "dim")
        return table

    def _repr_html_(self) -> str:
        headings, *rows = stage_rows(self.steps)
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
        body = "".join(
            ("<tr>" if step.changed else '<tr style="opacity:.6">')
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + "</tr>"
            for step, row in zip(self.steps, rows, strict=True)
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
