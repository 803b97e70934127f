"""Tables for people: as plain text, by rich in terminals, as HTML in notebooks."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

Row = tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """Headings, and rows of as many cells. `right` are the headings of numbers, `dim` the indexes of lesser rows."""

    headings: Row
    rows: tuple[Row, ...]
    right: frozenset[str] = frozenset()
    dim: frozenset[int] = frozenset()
    caption: str = ""

    def text(self) -> str:
        """The caption and the rows as plain text."""
        rows = (self.headings, *self.rows)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [self.caption] if self.caption else []
        for row in rows:
            cells = zip(self.headings, row, widths, strict=True)
            lines.append("  ".join(self._aligned(*cell) for cell in cells).rstrip())
        return "\n".join(lines)

    def _aligned(self, heading: str, cell: str, width: int) -> str:
        return cell.rjust(width) if heading in self.right else cell.ljust(width)

    def rich(self) -> Table:
        """The same for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, title=self.caption or None, title_justify="left", title_style="bold")
        for heading in self.headings:
            justify = "right" if heading in self.right else "left"
            table.add_column(heading, justify=justify, no_wrap=heading in self.right, overflow="fold")  # type: ignore[arg-type]
        for index, row in enumerate(self.rows):
            table.add_row(*map(Text, row), style="dim" if index in self.dim else None)
        return table

    def html(self) -> str:
        """The same for a notebook."""
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in self.headings)
        body = "".join(
            ('<tr style="opacity:.6">' if index in self.dim else "<tr>")
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + "</tr>"
            for index, row in enumerate(self.rows)
        )
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Shown:
    """What shows itself as a Grid, wherever it is printed."""

    def grid(self) -> Grid:
        """The table of it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.grid().text()

    def __rich__(self) -> Table:
        return self.grid().rich()

    def _repr_html_(self) -> str:
        return self.grid().html()
