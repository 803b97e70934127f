"""Arithmetic, comparisons, logic and bits: promotion, signs, NaN, infinities, zeros, in every pair of dtypes."""

from __future__ import annotations

import pytest
import torch

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

SPECIAL = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.5, 2.5, 0.5, -7.0, 1e-40, 1e30])
WHOLE = torch.tensor([0, 1, -1, 2, -3, 7, 100, -128])


def pairs(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    left, right = torch.meshgrid(values, values, indexing="ij")
    return left.reshape(-1).clone(), right.reshape(-1).clone()


def nonzero(values: torch.Tensor) -> torch.Tensor:
    return values.where(values != 0, torch.ones_like(values))


def binary(x, y):
    compared = (x == y, x != y, x < y, x <= y, x > y, x >= y)
    joined = (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y))
    return (x + y, x * y, x / y, torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), *compared, *joined)


def divided(x, y):
    modes = (torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x // y)
    return (torch.remainder(x, y), torch.fmod(x, y), *modes)


def of_numbers(x):
    sums = (x + 0.5, x - 2, 2 - x, x * 0.5, x / 2, 3 / x, x * 2, torch.add(x, x, alpha=2), torch.rsub(x, 3, alpha=2))
    return (*sums, x == 0.5, x < 1.5, x >= 1, x % 3, x % 0.75, x // 2, x**2, 2**x, x != 2, x > -0.5)


def of_itself(x):
    sums = (x - x, x / x, x * 0, x * 0.0, x + 0, x - 0.0, 0 - x, torch.maximum(x, x), (x + 1e30) - 1e30)
    return (*sums, x == x, x != x, x <= x, ~(x < 1))


DTYPES = {
    "int64": (torch.int64, torch.int64), "int32": (torch.int32, torch.int32), "mixed integers": (torch.int8, torch.uint8),
    "int32 and int64": (torch.int32, torch.int64), "integer and float": (torch.int64, torch.float32),
    "bool and integer": (torch.bool, torch.int32), "float32 and float64": (torch.float32, torch.float64),
    "float16": (torch.float16, torch.float16), "bfloat16": (torch.bfloat16, torch.bfloat16),
}  # fmt: skip

PROGRAMS = {
    "special values": (binary, lambda: pairs(SPECIAL)),
    "quotients of special values": (divided, lambda: pairs(SPECIAL[:-2])),
    **{
        name: (binary, lambda a=a, b=b: tuple(x.to(d) for x, d in zip(pairs(WHOLE), (a, b))))
        for name, (a, b) in DTYPES.items()
    },
    **{
        f"quotients of {name}": (divided, lambda d=d: (pairs(WHOLE)[0].to(d), nonzero(pairs(WHOLE)[1].to(d))))
        for name, d in (("int64", torch.int64), ("int32", torch.int32), ("uint8", torch.uint8), ("int8", torch.int8))
    },
    "numbers and integers": (of_numbers, lambda: (WHOLE.abs() % 9,)),
    "numbers and small integers": (of_numbers, lambda: ((WHOLE.abs() % 5).to(torch.uint8),)),
    "numbers and floats": (of_numbers, lambda: (SPECIAL[:-1],)),
    "numbers and float16": (of_numbers, lambda: (SPECIAL[3:10].half(),)),
    "a tensor and itself": (of_itself, lambda: (SPECIAL,)),
    "tensors without dimensions": (
        lambda x, y: (x + y, x * y, x / y, x < y),
        lambda: (torch.tensor([1.0, 2]), torch.tensor(0.1, dtype=torch.float64)),
    ),
    "an integer without dimensions": (
        lambda x, y: (x + y, x * y, x < y),
        lambda: (torch.tensor([1, 2], dtype=torch.int32), torch.tensor(3.5)),
    ),
    "bits": (lambda x, y: (x & y, x | y, x ^ y, ~x, x << (y.abs() % 8), x >> (y.abs() % 8)), lambda: pairs(WHOLE)),
    "bools": (
        lambda x, y: (x & y, x | y, x ^ y, ~x, x + y, x * y, torch.maximum(x, y), x == y, x < y),
        lambda: tuple(x > 0 for x in pairs(WHOLE)),
    ),
    "powers": (lambda x, y: (x**y, x**0.5, x**3, x**-1.0, 2.0**y), lambda: pairs(SPECIAL)),
    "integer powers": (lambda x, y: (x**5, y**3, x**63), lambda: pairs(WHOLE)),
    **{
        f"powers of {dtype} by tensors": (
            lambda x, y: (x**y, 3**y, x ** y.abs()),
            lambda dtype=dtype: tuple(x.to(dtype) for x in pairs(torch.tensor([0, 1, -1, 2, -3, 7, 63, 64, 101]))),
        )
        for dtype in (torch.int16, torch.int32, torch.int64)
    },
    **{
        f"roots and inverses in {dtype}": (
            lambda x: (x**0.5, x**-0.5, x**-1, x**-2, x**3, x**2.5),
            lambda dtype=dtype: (SPECIAL[:-2].to(dtype),),
        )
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    },
    "angles and signs": (
        lambda x, y: (torch.atan2(x, y), torch.hypot(x, y), torch.copysign(x, y), torch.logaddexp(x, y)),
        lambda: pairs(SPECIAL),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {
    "float16": {"rtol": 1e-2, "atol": 1e-2},
    "bfloat16": {"rtol": 2e-2, "atol": 1e-2},
    "numbers and float16": {"rtol": 1e-2, "atol": 1e-2},
}
UPSTREAM = ["numbers and integers", "special values", "a tensor and itself", "quotients of special values"]


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
