"""Recurrent layers with every option, as one kernel a layer and direction."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

# Eager says that its fast path has no projections.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")

nan, inf = float("nan"), float("inf")
R = torch.randn

LSTM = nn.LSTM(5, 4, num_layers=2)

PROGRAMS = {
    **{
        f"{kind.__name__} {options}": (kind(5, 4, **options).eval(), lambda: (R(3, 2, 5),))
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for options in (
            {},
            {"num_layers": 2, "bidirectional": True},
            {"batch_first": True, "bias": False},
            {"bidirectional": True, "bias": False, "num_layers": 2},
        )
    },
    "projected": (nn.LSTM(5, 4, proj_size=3).eval(), lambda: (R(3, 2, 5),)),
    "projected, both ways, without bias": (
        nn.LSTM(5, 4, proj_size=2, num_layers=2, bidirectional=True, bias=False).eval(),
        lambda: (R(3, 2, 5),),
    ),
    "relu": (nn.RNN(5, 4, nonlinearity="relu").eval(), lambda: (R(3, 2, 5),)),
    "with a first state": (lambda x, h, c: LSTM(x, (h, c)), lambda: (R(3, 2, 5), R(2, 2, 4), R(2, 2, 4))),
    "without a batch": (nn.LSTM(5, 4).eval(), lambda: (R(3, 5),)),
    "NaN": (nn.GRU(3, 4).eval(), lambda: (torch.tensor([[[1.0, nan, 0.0]], [[1.0, 2.0, 3.0]]]),)),
    "cells": (nn.LSTMCell(5, 4).eval(), lambda: (R(3, 5),)),
    "bfloat16": (nn.LSTM(5, 4).bfloat16().eval(), lambda: (R(3, 2, 5).bfloat16(),)),
}
TOLERANCES: dict[str, dict[str, float]] = {"bfloat16": {"rtol": 3e-2, "atol": 3e-2}}
UPSTREAM = ["projected", "projected, both ways, without bias"]


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


def test_59_steps_of_two_layers_compile_in_seconds_to_a_few_operators() -> None:
    module, args = nn.LSTM(24, 64, num_layers=2).eval(), (R(59, 1, 24),)
    start = time.process_time()
    assert try_program(module, args).kind == "equal"
    assert time.process_time() - start < 20
