"""Functions of one tensor, on special values and on every dtype."""

from __future__ import annotations

import pytest
import torch

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

SPECIAL = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.5, 2.5, 0.5, -0.5, 1e-40, 3e38, -7.0, 100.0, -100.0, 0.3])
WHOLE = torch.tensor([0, 1, -1, 2, -3, 7, 100, -128])
TO_FLOAT = "acos acosh asin asinh atan atanh cosh sinh tan erf erfc expm1 log1p log2 log10 exp2 exp log sqrt sin cos tanh sigmoid rsqrt reciprocal"
SAME = "floor ceil trunc round abs neg sign square"
TESTS = "signbit isnan isinf isfinite logical_not"


def every(names):
    return lambda x: tuple(getattr(torch, name)(x) for name in names.split())


PROGRAMS = {
    "the inverse error function": (
        lambda x: (torch.erfinv(x), torch.erfinv(x.double()), torch.erfinv(x.bfloat16())),
        lambda: (torch.tensor([-1.0, 1.0, 0.0, -0.0, 0.3, -0.69, 0.71, 0.999, -0.9999, 1.5, nan]),),
    ),
    "special values": (every(f"{TO_FLOAT} {SAME} {TESTS} frac lgamma"), lambda: (SPECIAL,)),
    "float64": (every(f"{TO_FLOAT} {SAME} {TESTS}"), lambda: (SPECIAL.double(),)),
    "float16": (every(f"{TO_FLOAT} {SAME} {TESTS}"), lambda: (SPECIAL.half(),)),
    "bfloat16": (every(f"{TO_FLOAT} {SAME} {TESTS}"), lambda: (SPECIAL.bfloat16(),)),
    "int64": (every(f"{TO_FLOAT} {SAME} {TESTS}"), lambda: (WHOLE,)),
    "uint8": (every(f"{TO_FLOAT} {SAME} {TESTS}"), lambda: (WHOLE.to(torch.uint8),)),
    "bool": (every(f"{TO_FLOAT} {TESTS}"), lambda: (WHOLE > 0,)),
    "decimals": (
        lambda x: (torch.round(x, decimals=2), torch.round(x, decimals=-1)),
        lambda: (torch.tensor([1.234, 15.0, 25.0, nan, -0.005]),),
    ),
    "halves": (torch.round, lambda: (torch.tensor([0.5, 1.5, 2.5, -0.5, -2.5, 4.5]),)),
}
TOLERANCES: dict[str, dict[str, float]] = {
    "float16": {"rtol": 1e-2, "atol": 1e-2},
    "bfloat16": {"rtol": 2e-2, "atol": 1e-2},
}
UPSTREAM = ["special values", "int64"]


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
