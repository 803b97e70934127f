"""Sums, products, extremes, statistics and norms: every dtype, with and without dim, NaN included."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

# Of fewer elements than the correction, PyTorch warns and gives NaN.
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")

nan, inf = float("nan"), float("inf")
R = torch.randn

NUMBERS = R(3, 4, 5, generator=torch.Generator().manual_seed(1))
SPECIAL = NUMBERS.clone()
SPECIAL[0, 1, 2], SPECIAL[1, 0, 0], SPECIAL[2, 3, 4], SPECIAL[1, 2] = nan, inf, -inf, nan
SMALL = torch.arange(60).reshape(3, 4, 5)


def extremes(x):
    whole = (
        x.max(),
        x.min(),
        x.amax((0, 2)),
        x.amin(1, True),
        x.argmax(),
        x.argmin(1),
        x.any(),
        x.all(1),
        x.any(-1, True),
    )
    return (*whole, *x.max(1), *x.min(-1, keepdim=True))


def truth(x):
    return (x.amax((0, 2)), x.amin(1, True), x.any(), x.all(1), x.any(-1, True), x.max(), *x.max(1), *x.min(-1))


def sums(x):
    return (x.sum(), x.sum(1), x.sum((0, 2), True), x.prod(), x.prod(1, True))


def statistics(x):
    spread = (
        x.var(),
        x.var(1, correction=0),
        x.std((0, 2), correction=2, keepdim=True),
        *torch.var_mean(x, 1),
        *torch.std_mean(x),
    )
    return (x.mean(), x.mean(1), x.mean((0, 2), True), *spread)


def of_nothing(x):
    truths = ((x > 0).any(0), (x > 0).all(0), (x > 0).sum(0), x.long().prod(0), x.logsumexp(0), x.norm(dim=0))
    return (x.sum(0), x.mean(0), x.mean(), x.prod(0, True), x.var(0), x.std(), *truths, x.t() @ x, x.nansum(0))


PROGRAMS = {
    "nothing": (of_nothing, lambda: (torch.zeros(0, 4),)),
    "extremes of special values": (extremes, lambda: (SPECIAL,)),
    "sums of special values": (lambda x: sums(x) + statistics(x), lambda: (SPECIAL,)),
    "statistics far from zero": (statistics, lambda: (NUMBERS + 1000,)),
    **{
        f"{kind} of {name}": (function, lambda make=make: (make(),))
        for kind, function in (("sums", sums), ("extremes", extremes))
        for name, make in (
            ("float64", lambda: NUMBERS.double()),
            ("int64", lambda: SMALL - 30),
            ("int8", lambda: (SMALL * 3).to(torch.int8)),
            ("uint8", lambda: (SMALL * 7).to(torch.uint8)),
            ("int32", lambda: SMALL.int()),
            ("float16", lambda: NUMBERS.half()),
            ("bfloat16", lambda: NUMBERS.bfloat16()),
        )
    },
    "sums of bools": (sums, lambda: (SMALL % 7 > 2,)),
    "extremes of bools": (truth, lambda: (SMALL % 7 > 2,)),
    "without dimensions": (
        lambda x: (x.sum(), x.max(), x.argmax(), x.mean(), x.amax(), x.any(), x.prod()),
        lambda: (torch.tensor(3.0),),
    ),
    "dtypes": (
        lambda x: (
            x.sum(dtype=torch.float64),
            x.sum(dtype=torch.int32),
            x.prod(dtype=torch.int64),
            x.mean(dtype=torch.float32),
        ),
        lambda: (SMALL % 4,),
    ),
    "many terms": (lambda x: (x.sum(), x.mean(), x.var()), lambda: (torch.ones(20_000_000),)),
    "norms": (
        lambda x: (x.norm(), x.norm(dim=1), x.norm(p=1), x.norm(p=inf), x.norm(p=3, dim=(0, 1)), F.normalize(x, dim=1)),
        lambda: (NUMBERS,),
    ),
    "logsumexp": (lambda x: torch.logsumexp(x, (0, 1)), lambda: (NUMBERS,)),
}
TOLERANCES: dict[str, dict[str, float]] = {
    f"{kind} of {half}": {"rtol": 3e-2, "atol": 2e-2}
    for kind in ("sums", "extremes")
    for half in ("float16", "bfloat16")
}
UPSTREAM = ["extremes of special values", "sums of int8", "extremes of bools", "many terms"]


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
