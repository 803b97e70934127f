"""Tensors from nothing and conversions of dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.cases.programs import session_of, try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

PROGRAMS = {
    "roundings that stay": (
        lambda x: (
            x.bfloat16().float(),
            (x.bfloat16() * x.bfloat16()).float() * 3,
            x.half().float(),
            x.double().bfloat16().float(),
        ),
        lambda: (torch.randn(64, generator=torch.Generator().manual_seed(0)),),
    ),
    "from nothing": (
        lambda x: (
            x.new_zeros(2, 3),
            torch.arange(5),
            torch.arange(0, 1, 0.25),
            torch.linspace(0, 1, 5),
            torch.eye(3),
            torch.full((2,), 7),
            torch.ones_like(x, dtype=torch.int32),
            torch.full_like(x, 2),
            torch.tril_indices(3, 3),
        ),
        lambda: (R(2, 3),),
    ),
    "from floats": (
        lambda x: (
            x.to(torch.bool),
            x.double(),
            x.half(),
            x.bfloat16(),
            x.nan_to_num(0, 9, 9).clamp(-100, 100).to(torch.int32),
            x.nan_to_num(0, 9, 9).clamp(0, 100).to(torch.uint8),
        ),
        lambda: (torch.tensor([nan, inf, -inf, 0.0, 0.5, -0.5, 2.7, -3.2]),),
    ),
    "from integers": (
        lambda x: (
            x.bool(),
            x.float(),
            x.to(torch.int8),
            x.to(torch.uint8),
            x.bool().float(),
            x.bool().half(),
            x.bool().int(),
        ),
        lambda: (torch.tensor([0, 1, -1, 300, 2**40]),),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kind_gives_eager_s_answer(name: str) -> None:
    torch.manual_seed(0)
    function, args = PROGRAMS[name]
    outcome = try_program(function, args(), **TOLERANCES.get(name, {}))
    assert outcome.kind == "equal", outcome.problem.detail


def test_a_rounding_to_bfloat16_is_exact_also_inside_of_a_kernel() -> None:
    x = torch.cat([torch.randn(1000), torch.tensor([float("nan"), float("inf"), -0.0, 3.3895e38, 1e-40, 1.00390625])])
    expected = (x.bfloat16() * x.bfloat16()).float()
    (answer,) = session_of(lambda x: (x.bfloat16() * x.bfloat16()).float(), (x,)).run([x.numpy()])
    np.testing.assert_array_equal(answer, expected.numpy())


def test_the_correction_is_still_needed() -> None:
    wrong = (lambda x: torch.full_like(x, float("nan")), (torch.randn(3),))
    assert not upstream_is_right(*wrong), "TVM gets full_like with NaN right: see whether its correction can go"
