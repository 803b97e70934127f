"""Running sums and extremes, sorting, the largest elements; NaN comes last."""

from __future__ import annotations

import pytest
import torch

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

SPECIAL = torch.tensor([[1.0, nan, -2.0, inf, 0.5], [3.0, -inf, nan, 3.0, 1.0]])


def sorted_stably(x):
    ascending, descending = torch.sort(x, stable=True, dim=-1), torch.sort(x, stable=True, dim=0, descending=True)
    return (*ascending, *descending, torch.argsort(x, stable=True, dim=-1))


def running(x):
    return (x.cumsum(0), x.cumsum(-1), x.cumprod(0), *x.cummax(0), *x.cummin(-1))


def medians(x):
    return (x.median(), x.nanmedian(), *x.median(1), *x.nanmedian(-1, keepdim=True), *x.kthvalue(2, 1), x.quantile(0.3))


PROGRAMS = {
    "medians": (medians, lambda: (R(4, 7),)),
    "medians of special values": (lambda x: (x.median(1)[0], x.nanmedian(1)[0], x.kthvalue(2)[0]), lambda: (SPECIAL,)),
    "medians of integers": (
        lambda x: (x.median(), x.median(0)[0], x.kthvalue(3)[0]),
        lambda: (torch.arange(12).reshape(3, 4),),
    ),
    **{
        f"{kind} of {name}": (function, lambda make=make: (make(),))
        for kind, function in (("running", running), ("sorted", sorted_stably))
        for name, make in (
            ("special values", lambda: SPECIAL),
            ("int64", lambda: torch.arange(18).reshape(3, 6) * 7 % 5 - 2),
            ("int8", lambda: (torch.arange(18).reshape(3, 6) * 37 % 101).to(torch.int8)),
            ("bool", lambda: torch.arange(18).reshape(3, 6) % 3 == 0),
            ("float16", lambda: R(3, 7).half()),
            ("many", lambda: R(2, 300)),
            ("one", lambda: R(1, 1)),
        )
    },
    "int32 product": (lambda x: torch.cumprod(x, 0), lambda: (torch.tensor([70000, 70000, 3], dtype=torch.int32),)),
    "largest": (lambda x: (*x.topk(3), *x.topk(2, largest=False), *x.topk(2, dim=0)), lambda: (R(4, 7),)),
}
TOLERANCES: dict[str, dict[str, float]] = {
    "running of float16": {"rtol": 1e-2, "atol": 1e-2},
    "running of many": {"atol": 1e-3},
}
UPSTREAM = ["running of special values", "int32 product", "sorted of special values"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kind_gives_eager_s_answer(name: str) -> None:
    torch.manual_seed(0)
    function, args = PROGRAMS[name]
    outcome = try_program(function, args(), **TOLERANCES.get(name, {}))
    assert outcome.kind == "equal", outcome.problem.detail


@pytest.mark.parametrize("name", UPSTREAM)
def test_the_correction_is_still_needed(name: str) -> None:
    function, args = PROGRAMS[name]
    torch.manual_seed(0)
    assert not upstream_is_right(function, args()), f"TVM gets {name} right: see whether its correction can go"
