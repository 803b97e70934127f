"""What POST /compile/{id}/bisect takes and gives, for validation and OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.schemas import ProblemView


class BisectRequest(BaseModel):
    """The body of POST /compile/{id}/bisect. Everything has a default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    symptom: Literal["auto", "wrong", "slow"] = Field(
        default="auto", description="`auto` is what the record of the Compilation says; `slow` needs `against`."
    )
    against: str | None = Field(default=None, description="A Compilation of the same model that is quicker.")
    factor: Annotated[float, Field(ge=1.1, le=1000)] = Field(default=1.5, description="By how much slower is slow.")
    attempts: Annotated[int, Field(ge=1, le=2000)] = Field(default=200, description="How many attempts it may make.")
    seconds: Annotated[float, Field(ge=1, le=3600)] = Field(default=600, description="How long it may take.")


class FindingView(BaseModel):
    """Where it shows first: step 0 is the import, one more than there are passes the build.

    `inner_pass` is the pass of TVM inside of the step, `message` what TVM says without C++ frames, `node` the first
    node of the model whose value is wrong, `binding` what stands for it; times are of one run.
    """

    kind: Literal["failure", "crash", "hang", "wrong", "slow"]
    step: int
    pass_name: str | None = Field(alias="pass")
    inner_pass: str | None
    function: str | None
    message: str
    problem: str | None
    signal: str | None
    node: str | None
    binding: str | None
    before_ms: float | None
    after_ms: float | None


class ReducedView(BaseModel):
    """The smallest model so far that shows it: `code` makes it in Python, `href` is the `.pt2` with its values."""

    nodes: int
    nodes_before: int | None
    outputs: int
    code: str
    href: str


class BoundsView(BaseModel):
    attempts: int
    seconds: float


class TriedView(BaseModel):
    """One attempt: what was tried, and whether it shows the same."""

    attempt: int
    tried: str
    shows: bool
    nodes: int | None


class BisectionView(BaseModel):
    """A bisection as it stands. It is kept until the server stops."""

    compilation: str
    href: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    created_at: str
    started_at: str | None
    ended_at: str | None
    symptom: Literal["failure", "crash", "hang", "wrong", "slow"]
    against: str | None
    doing: str | None
    found: FindingView | None
    reduced: ReducedView | None
    notes: list[str]
    attempts: int
    seconds: float
    limits: BoundsView
    tried: list[TriedView]
    problem: ProblemView | None
