"""Branches on data and assertions."""

from __future__ import annotations

import pytest
import torch

from tests.cases.programs import try_program

nan, inf = float("nan"), float("inf")
R = torch.randn


def guarded(x):
    torch._assert_async(x.sum() > 0, "the sum must be positive")
    return x + 1


PROGRAMS = {
    "a branch": (
        lambda x: torch.cond(x.sum() > 0, lambda t: (t.cos(), t + 1), lambda t: (t.sin(), t - 1), (x,)),
        lambda: (torch.tensor([0.1, 0.2, -5.0]),),
    ),
    "a branch with an index": (
        lambda x, i: torch.cond(x.sum() > 0, lambda t, i: t[i], lambda t, i: t[i * 0], (x, i)),
        lambda: (torch.tensor([0.1, 0.2, -5.0]), torch.tensor([7])),
    ),
    "an assertion that holds": (guarded, lambda: (torch.ones(3),)),
}
TOLERANCES: dict[str, dict[str, float]] = {}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kind_gives_eager_s_answer(name: str) -> None:
    torch.manual_seed(0)
    function, args = PROGRAMS[name]
    outcome = try_program(function, args(), **TOLERANCES.get(name, {}))
    assert outcome.kind == "equal", outcome.problem.detail


def test_an_assertion_that_does_not_hold_fails_the_call() -> None:
    outcome = try_program(guarded, (torch.ones(3),), run=(-torch.ones(3),))
    assert outcome.kind == "refused"
    assert "positive" in outcome.problem.detail


def test_a_division_of_integers_by_zero_fails_the_call() -> None:
    outcome = try_program(lambda x: 5 // x, (torch.tensor([1, 2]),), run=(torch.tensor([1, 0]),))
    assert outcome.kind == "refused"
    assert "zero" in outcome.problem.detail
