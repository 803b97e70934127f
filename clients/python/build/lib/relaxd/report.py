"""Plain text for people: the table of steps and the difference of two Snapshots."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from relaxd.nouns import Step

_HEADINGS = ("step", "stage", "pass", "changed", "ms", "ops", "max error")
RIGHT_ALIGNED = frozenset({"step", "ms", "max error"})


def stage_rows(steps: Iterable[Step]) -> list[tuple[str, ...]]:
    """The headings, then one row per step.

    `ops` is the count of operators and calls before and after; `max error` is ``-`` unchecked.
    """
    rows: list[tuple[str, ...]] = [_HEADINGS]
    before: int | None = None
    for step in steps:
        after = sum(step.ops.values())
        rows.append(
            (
                str(step.index),
                step.stage,
                step.pass_name or "(import)",
                "yes" if step.changed else "no",
                f"{step.wall_ms:.1f}",
                str(after) if before is None else f"{before} -> {after}",
                "-" if step.error is None else f"{step.error:.2e}",
            )
        )
        before = after
    return rows


def stage_table(steps: Iterable[Step]) -> str:
    """The rows as plain text."""
    rows = stage_rows(steps)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if heading in RIGHT_ALIGNED else cell.ljust(width)
        for heading, cell, width in zip(_HEADINGS, row, widths, strict=True)
    )
    return "  ".join(cells).rstrip()


def text_diff(before: str, after: str, before_label: str, after_label: str) -> str:
    """The unified diff of two texts, empty when they are equal."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_label, after_label, lineterm="")
    return "\n".join(lines)
