"""Two texts beside each other in a terminal, with what differs inside of lines marked."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

Row = tuple[int | None, str, int | None, str]
"""Line number and text on the left, and on the right; None where that side has no such line."""

_REMOVED, _ADDED = "red", "green"


def aligned(before: str, after: str) -> list[Row]:
    """All lines of both, those that correspond in one row."""
    left, right = before.splitlines(), after.splitlines()
    rows: list[Row] = []
    for _, start, end, other_start, other_end in difflib.SequenceMatcher(None, left, right, False).get_opcodes():
        for offset in range(max(end - start, other_end - other_start)):
            i, j = start + offset, other_start + offset
            old = (i + 1, left[i]) if i < end else (None, "")
            new = (j + 1, right[j]) if j < other_end else (None, "")
            rows.append((*old, *new))
    return rows


def hunks(rows: list[Row], context: int | None) -> Iterator[list[Row]]:
    """The rows that differ with so many equal ones around; all of them in one hunk where `context` is None."""
    if context is None:
        yield rows
        return
    differing = [index for index, row in enumerate(rows) if differs(row)]
    start = end = 0
    for index in differing:
        if index - context > end:
            if end > start:
                yield rows[start:end]
            start = index - context
        end = min(len(rows), index + context + 1)
    if end > start:
        yield rows[start:end]


def differs(row: Row) -> bool:
    """Whether its two sides are not the same line."""
    return row[0] is None or row[2] is None or row[1] != row[3]


def side_by_side(before: str, after: str, labels: tuple[str, str], context: int | None = 3) -> Table:
    """The table of both. Where nothing differs and `context` is given it has no rows."""
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, pad_edge=False)
    for label in labels:
        table.add_column("", justify="right", style="dim", no_wrap=True)
        table.add_column(Text(label), ratio=1, overflow="fold")
    for number, hunk in enumerate(hunks(aligned(before, after), context)):
        if number:
            table.add_row("", Text("...", style="dim"), "", Text("...", style="dim"))
        for row in hunk:
            old, new = marked(row)
            table.add_row(str(row[0] or ""), old, str(row[2] or ""), new)
    return table


def marked(row: Row) -> tuple[Text, Text]:
    """Both sides of a row: as they are, coloured as a whole, or with the words that differ in reverse."""
    old, new = Text(row[1]), Text(row[3])
    if not differs(row):
        return old, new
    old.stylize(_REMOVED)
    new.stylize(_ADDED)
    if row[0] is None or row[2] is None:
        return old, new
    matcher = difflib.SequenceMatcher(None, row[1], row[3], False)
    if matcher.ratio() < 0.3:
        return old, new
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            old.stylize("reverse", start, end)
            new.stylize("reverse", other_start, other_end)
    return old, new
