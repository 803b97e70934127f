"""The Compilation as plain data: what the server said, without a connection to ask it more."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from relaxd.errors import ProblemError, problem_error
from relaxd.nouns import JsonObject, Model, Recipe, Signature, Step, Timing, Verification
from relaxd.stages import Stages

RecordT = TypeVar("RecordT", bound="CompilationRecord")

_ENDED = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True)
class CompilationRecord:
    """What the server knows of a Compilation at one moment. `Compilation` adds the calls that belong to it.

    Times are ISO 8601 as the server wrote them. `signature` is None until the import has ended; `problem` is the
    error (not raised) of a failed Compilation. `checks` is what is verified: ``artifact`` or ``every_step``. `results`
    are what the build made of the last step: ``vm``, ``tir``, ``llvm``, and ``asm`` once it was asked for. `raw` is
    the answer itself.
    """

    id: str
    state: str
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    model: Model
    signature: Signature | None
    recipe: Recipe
    checks: str
    steps: tuple[Step, ...]
    results: tuple[Step, ...]
    timings: tuple[Timing, ...]
    verification: Verification | None
    problem: ProblemError | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def from_json(cls: type[RecordT], value: Mapping[str, Any], **bound: Any) -> RecordT:
        """Reads the server's JSON; `bound` are the fields that a subclass adds. Raises KeyError or TypeError."""
        signature, verification, problem = (value.get(name) for name in ("signature", "verification", "problem"))
        return cls(
            id=value["id"],
            state=value["state"],
            created_at=value.get("created_at"),
            started_at=value.get("started_at"),
            ended_at=value.get("ended_at"),
            model=Model.from_json(value["model"]),
            signature=None if signature is None else Signature.from_json(signature),
            recipe=Recipe.from_json(value["recipe"]),
            checks=value["verify"],
            steps=tuple(Step.from_json(step) for step in value.get("steps", ())),
            results=tuple(Step.from_json(step) for step in value.get("results", ())),
            timings=tuple(Timing.from_json(timing) for timing in value.get("timings", ())),
            verification=None if verification is None else Verification.from_json(verification),
            problem=None if problem is None else problem_error({**problem, "compilation": value["id"]}),
            raw=dict(value),
            **bound,
        )

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in _ENDED

    @property
    def stages(self) -> Stages:
        """The stages of `steps`, in the order in which the Recipe first reached them; shown as the table of steps."""
        return Stages(self.steps)

    def table(self) -> str:
        """The steps as a plain-text table: pass, changed, milliseconds, operators before and after, largest error."""
        return str(self.stages)

    def _repr_html_(self) -> str:
        verdict = "" if self.verification is None else f", {self.verification.verdict}"
        head = f"<p><b>{html.escape(self.state)}</b> <code>{html.escape(self.id)}</code>{html.escape(verdict)}</p>"
        problem = "" if self.problem is None else f"<p>{html.escape(str(self.problem))}</p>"
        return head + self.stages._repr_html_() + problem
