"""Convolutions and their transposes, every option, every float dtype."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

PROGRAMS = {
    **{
        f"{rank}d {options}": (make(4, 6, 3, **options), lambda rank=rank: (R(2, 4, *[7, 8, 6][:rank]),))
        for rank, make in ((1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d))
        for options in (
            {"stride": 2, "padding": 1},
            {"dilation": 2},
            {"groups": 2, "bias": False},
            {"padding": "same"},
            {"padding": 1, "padding_mode": "circular"},
        )
    },
    **{
        f"transposed {rank}d {options}": (make(4, 6, 3, **options), lambda rank=rank: (R(2, 4, *[7, 8, 6][:rank]),))
        for rank, make in ((1, nn.ConvTranspose1d), (2, nn.ConvTranspose2d), (3, nn.ConvTranspose3d))
        for options in (
            {"stride": 2, "padding": 1, "output_padding": 1},
            {"dilation": 2, "stride": 2},
            {"groups": 2, "bias": False, "padding": 2},
            {"groups": 2, "stride": 2},
            {"stride": 3, "padding": 1},
            {"stride": 4, "padding": 2, "output_padding": 3},
            {"stride": 2, "padding": 2},
        )
    },
    "transposed with strides that differ": (
        nn.ConvTranspose2d(3, 5, (4, 3), (2, 3), (1, 0), (0, 2)),
        lambda: (R(2, 3, 5, 4),),
    ),
    "transposed by one element": (nn.ConvTranspose2d(3, 5, 2, 2), lambda: (R(1, 3, 1, 1),)),
    "float64": (nn.Conv2d(4, 6, 3).double(), lambda: (R(2, 4, 7, 7).double(),)),
    "bfloat16": (nn.Conv2d(4, 6, 3).bfloat16(), lambda: (R(2, 4, 7, 7).bfloat16(),)),
    "a weight that is an input": (
        lambda x, w: (F.conv2d(x, w), F.conv_transpose2d(x, w.transpose(0, 1), stride=2, groups=1)),
        lambda: (R(1, 4, 6, 6), R(6, 4, 3, 3)),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {"bfloat16": {"rtol": 3e-2, "atol": 3e-2}}
UPSTREAM = ["float64"]


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
