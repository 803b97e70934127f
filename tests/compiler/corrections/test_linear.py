"""Matrix products in every dtype, empty ones, and the scaled sums."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

PROGRAMS = {
    **{
        f"layers of {dtype}": (
            nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).to(dtype),
            lambda dtype=dtype: (R(2, 8).to(dtype),),
        )
        for dtype in (torch.float16, torch.bfloat16, torch.float64)
    },
    "integers": (
        lambda a, b: (a @ b, torch.mm(a, b)),
        lambda: (torch.randint(-5, 5, (3, 4)), torch.randint(-5, 5, (4, 2))),
    ),
    "vectors": (lambda a, b: (a.mv(b), b.dot(b), torch.outer(b, b), a @ b, b @ a.T), lambda: (R(3, 4), R(4))),
    "batches": (
        lambda a: (torch.bmm(a, a.mT), torch.baddbmm(a @ a.mT, a, a.mT, beta=0.5, alpha=2), a @ a[0].T),
        lambda: (R(2, 3, 4),),
    ),
    "a sum that is not read": (
        lambda c, a, b: (torch.addmm(c, a, b, beta=0), torch.addmm(c, a, b)),
        lambda: (torch.full((2, 2), nan), R(2, 3), R(3, 2)),
    ),
    "nothing inside": (
        lambda a, b: (a @ b, torch.bmm(a[None], b[None])),
        lambda: (torch.zeros(4, 0), torch.zeros(0, 3)),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {
    f"layers of {dtype}": {"rtol": 3e-2, "atol": 2e-2} for dtype in ("torch.float16", "torch.bfloat16")
}
UPSTREAM = ["layers of torch.float64", "integers", "nothing inside"]


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
