"""The stages of a Compilation: a tuple of names that shows itself as the table of steps."""

from __future__ import annotations

from collections.abc import Iterable

from relaxd.grids import Grid, Shown
from relaxd.nouns import Step
from relaxd.report import stage_grid


class Stages(Shown, tuple[str, ...]):
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

    def grid(self) -> Grid:
        """One row a step."""
        return stage_grid(self.steps)
