"""Pools of every kind, with NaN in the input."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn


def image(rank):
    x = R(2, 3, *[9, 8, 7][:rank])
    x[0, 0].view(-1)[3] = nan
    return (x,)


def averages(rank):
    pool = getattr(F, f"avg_pool{rank}d")
    wide = {"kernel_size": 3, "stride": 2, "padding": 1}
    override = (lambda x: (pool(x, 3, 2, divisor_override=5),)) if rank > 1 else (lambda x: ())
    return lambda x: (
        pool(x, 2),
        pool(x, **wide),
        pool(x, ceil_mode=True, **wide),
        pool(x, 2, 3, ceil_mode=True),
        pool(x, ceil_mode=True, count_include_pad=False, **wide),
        *override(x),
    )


def largest(rank, indices):
    pool = getattr(F, f"max_pool{rank}d")
    wide = {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": indices}
    return lambda x: (
        pool(x, 2, return_indices=indices),
        pool(x, **wide),
        pool(x, ceil_mode=True, dilation=2, **wide),
        pool(x, 2, 3, ceil_mode=True, return_indices=indices),
    )


def adaptive(rank):
    mean, top = getattr(F, f"adaptive_avg_pool{rank}d"), getattr(F, f"adaptive_max_pool{rank}d")
    return lambda x: (mean(x, 1), mean(x, 2), mean(x, 4), top(x, 1), top(x, 4, return_indices=True))


PROGRAMS = {
    **{f"averages {rank}d": (averages(rank), lambda rank=rank: image(rank)) for rank in (1, 2, 3)},
    **{f"largest {rank}d": (largest(rank, False), lambda rank=rank: image(rank)) for rank in (1, 2, 3)},
    **{f"largest {rank}d with indices": (largest(rank, True), lambda rank=rank: image(rank)) for rank in (1, 2, 3)},
    **{f"adaptive {rank}d": (adaptive(rank), lambda rank=rank: image(rank)) for rank in (1, 2, 3)},
}
TOLERANCES: dict[str, dict[str, float]] = {}
UPSTREAM = ["averages 2d", "largest 2d", "adaptive 2d"]


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
