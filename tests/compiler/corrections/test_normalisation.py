"""Normalisation, also where the mean is large beside the deviation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

PROGRAMS = {
    "layers": (nn.LayerNorm(6), lambda: (R(2, 3, 6),)),
    "layers far from zero": (nn.LayerNorm((3, 6), elementwise_affine=False), lambda: (R(2, 3, 6) + 10000,)),
    "layers of float16": (nn.LayerNorm(6).half(), lambda: (R(2, 6).half(),)),
    "layers of float64": (nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)).double(), lambda: (R(2, 6).double(),)),
    "groups": (nn.GroupNorm(2, 4), lambda: (R(2, 4, 5, 5) + 300,)),
    "instances": (nn.InstanceNorm2d(4, affine=True), lambda: (R(2, 4, 5, 5),)),
    "batches": (
        nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, affine=False)),
        lambda: (R(2, 4, 5, 5),),
    ),
    "the statistics of the batch": (nn.BatchNorm2d(4, track_running_stats=False), lambda: (R(2, 4, 5, 5),)),
    "root mean squares": (nn.RMSNorm(6), lambda: (R(2, 6),)),
    "local responses": (nn.LocalResponseNorm(2), lambda: (R(2, 4, 5, 5),)),
}
TOLERANCES: dict[str, dict[str, float]] = {
    "layers of float16": {"rtol": 1e-2, "atol": 1e-2},
    "layers far from zero": {"atol": 5e-3},
}
UPSTREAM = ["layers of float64", "groups"]


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
