"""What a bisection found, as frozen values, and the calls that belong to looking into a Compilation, as Flows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote

from relaxd.errors import ProblemError, StillRunning, problem_error
from relaxd.nouns import JsonObject
from relaxd.sending import Flow, Pause, Request, read_answer, send

# How long one GET waits for the end, and the least time between two.
_POLL_S = 5
_SHORTEST_POLL_S = 0.2


@dataclass(frozen=True)
class Finding:
    """Where a symptom shows first: `step` 0 is the import, one more than there are passes the build.

    `kind` is failure, crash, hang, wrong or slow; `inner_pass` the pass of TVM inside of the step, and `function` what
    was transformed, where they are known; `message` what TVM says. `raw` has the rest.
    """

    kind: str
    step: int
    pass_name: str | None
    inner_pass: str | None
    function: str | None
    message: str
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Finding:
        members = (value["pass"], value["inner_pass"], value["function"], value["message"])
        return cls(value["kind"], int(value["step"]), *members, dict(value))


@dataclass(frozen=True)
class Reduced:
    """The smallest model so far that shows it; `code` is a script that makes it."""

    nodes: int
    nodes_before: int | None
    code: str = field(repr=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Reduced:
        return cls(int(value["nodes"]), value["nodes_before"], value["code"])


@dataclass(frozen=True)
class Bisection:
    """A bisection at one moment. `problem` is the error (not raised) of one that failed; `raw` the answer itself."""

    compilation: str
    state: str
    symptom: str
    doing: str | None
    found: Finding | None
    reduced: Reduced | None
    notes: tuple[str, ...]
    attempts: int
    problem: ProblemError | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Bisection:
        found, reduced, problem = (value[name] for name in ("found", "reduced", "problem"))
        return cls(
            value["compilation"],
            value["state"],
            value["symptom"],
            value["doing"],
            None if found is None else Finding.from_json(found),
            None if reduced is None else Reduced.from_json(reduced),
            tuple(value["notes"]),
            int(value["attempts"]),
            None if problem is None else problem_error({**problem, "compilation": value["compilation"]}),
            dict(value),
        )

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ("succeeded", "failed", "cancelled")


OnProgress: TypeAlias = Callable[[Bisection], object]


def bisect(
    compilation: str,
    *,
    symptom: str,
    against: str | None,
    factor: float | None,
    attempts: int | None,
    seconds: float | None,
    on_progress: OnProgress | None,
    wait_s: float,
) -> Flow[Bisection]:
    """The bisection once it has ended, or was cancelled. Raises the Problem of one that failed, and StillRunning."""
    asked: JsonObject = {"symptom": symptom, "against": against, "factor": factor}
    asked |= {"attempts": attempts, "seconds": seconds}
    body = json.dumps({name: value for name, value in asked.items() if value is not None}).encode()
    headers = {"Content-Type": "application/json"}
    answer = yield from send(Request("POST", _path(compilation), headers=headers, body=body))
    state = read_answer(answer, Bisection.from_json)
    deadline = time.monotonic() + wait_s
    while True:
        if on_progress is not None:
            on_progress(state)
        if state.ended:
            break
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise StillRunning(compilation, wait_s)
        asked_at = time.monotonic()
        state = yield from bisection(compilation, min(_POLL_S, max(1, round(left_s))))
        if not state.ended:
            yield Pause(max(0.0, _SHORTEST_POLL_S - (time.monotonic() - asked_at)))
    if state.problem is not None:
        raise state.problem
    return state


def bisection(compilation: str, wait_s: int) -> Flow[Bisection]:
    """The bisection as it stands, after at most `wait_s` for its end."""
    headers = {"Prefer": f"wait={wait_s}"} if wait_s > 0 else {}
    answer = yield from send(Request("GET", _path(compilation), headers=headers, wait_s=wait_s))
    return read_answer(answer, Bisection.from_json)


def stop_bisection(compilation: str) -> Flow[None]:
    """Cancels one that runs, forgets one that has ended."""
    yield from send(Request("DELETE", _path(compilation)))


def reduced_model(compilation: str) -> Flow[bytes]:
    """The `.pt2` of the smallest model."""
    answer = yield from send(Request("GET", f"{_path(compilation)}/model.pt2"))
    return answer.content


def repro(compilation: str) -> Flow[bytes]:
    """The archive that runs it again."""
    answer = yield from send(Request("GET", f"/compile/{quote(compilation, safe='')}/repro.zip"))
    return answer.content


def report(compilation: str, profile: bool) -> Flow[str]:
    """The page."""
    query: dict[str, str | int] = {"profile": "true"} if profile else {}
    answer = yield from send(Request("GET", f"/compile/{quote(compilation, safe='')}/report.html", query))
    return answer.text


def _path(compilation: str) -> str:
    return f"/compile/{quote(compilation, safe='')}/bisect"
