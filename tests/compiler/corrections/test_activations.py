"""Activation functions, clamping and choosing, on special values."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

SPECIAL = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.5, 2.5, 0.5, -0.5, 1e-40, 1e30, -7.0, 100.0, -100.0, 0.3])
PLAIN = "relu6 silu elu selu celu hardtanh hardsigmoid hardswish softplus softshrink hardshrink softsign tanhshrink logsigmoid mish leaky_relu relu"
WEIGHT = torch.tensor([0.1, 0.2, 0.3, 0.4])

PROGRAMS = {
    "plain": (lambda x: tuple(getattr(F, name)(x) for name in PLAIN.split()), lambda: (SPECIAL,)),
    "with options": (
        lambda x: (
            F.threshold(x, 0.1, 20.0),
            F.softplus(x, 2.0, 5.0),
            F.celu(x, 2.0),
            F.elu(x, 0.5),
            F.glu(x.reshape(2, 8)),
            F.leaky_relu(x, 0.3),
        ),
        lambda: (SPECIAL,),
    ),
    "gelu": (lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")), lambda: (R(64) * 4,)),
    "prelu": (lambda x: F.prelu(x, WEIGHT), lambda: (R(2, 4, 3),)),
    "clamp": (
        lambda x: (
            x.clamp(-1, 1),
            x.clamp(min=0.2),
            x.clamp(max=0.3),
            torch.clamp(x, torch.tensor(-1.0), torch.tensor([2.0])),
            x.nan_to_num(),
        ),
        lambda: (SPECIAL,),
    ),
    "clamp of integers": (
        lambda x: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(0.5, 2.5)),
        lambda: (torch.tensor([0, 1, -3, 7]),),
    ),
    "where": (
        lambda x: (
            torch.where(x > 0, x, 0),
            torch.where(x > 0, x, torch.tensor(1, dtype=torch.float64)),
            x.masked_fill(x > 0, -inf),
        ),
        lambda: (SPECIAL,),
    ),
    "softmax": (
        lambda x: (
            x.softmax(-1),
            x.log_softmax(-1),
            torch.logsumexp(x, -1),
            x.softmax(0),
            x.double().softmax(1),
            x.half().softmax(1),
        ),
        lambda: (torch.tensor([[1.0, 2.0], [-inf, 3.0], [inf, 1.0], [nan, 0.0], [-inf, -inf]]),),
    ),
    "softmax without dimensions": (lambda x: (x.softmax(0), x.log_softmax(0)), lambda: (torch.tensor(2.0),)),
}
TOLERANCES: dict[str, dict[str, float]] = {"softmax": {"rtol": 1e-2}}
UPSTREAM = ["plain", "clamp"]


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
