"""What people look at: the table of steps and the difference of two Snapshots."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from relaxd.grids import Grid, Row
from relaxd.nouns import Step

_HEADINGS = ("step", "stage", "pass", "changed", "ms", "ops", "max error")


def stage_grid(steps: Iterable[Step]) -> Grid:
    """One row a step; those that changed nothing are dim.

    `ops` is the count of operators and calls before and after; `max error` is ``-`` unchecked.
    """
    rows: list[Row] = []
    same: set[int] = set()
    before: int | None = None
    for step in steps:
        after = sum(step.ops.values())
        if not step.changed:
            same.add(len(rows))
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
    return Grid(_HEADINGS, tuple(rows), frozenset({"step", "ms", "max error"}), frozenset(same))


def text_diff(before: str, after: str, before_label: str, after_label: str) -> str:
    """The unified diff of two texts, empty when they are equal."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_label, after_label, lineterm="")
    return "\n".join(lines)
