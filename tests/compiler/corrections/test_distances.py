"""Distances and bilinear forms."""

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
    "of all pairs": (lambda x: (torch.pdist(x), torch.pdist(x, 1.0)), lambda: (R(4, 3),)),
    "distances": (
        lambda a, b: (torch.cdist(a, b), F.cosine_similarity(a, b[:3]), F.pairwise_distance(a, b[:3])),
        lambda: (R(3, 4), R(5, 4)),
    ),
    "bilinear": (nn.Bilinear(3, 4, 5), lambda: (R(2, 3), R(2, 4))),
    "losses": (
        lambda a, b: (
            F.mse_loss(a, b),
            F.smooth_l1_loss(a, b),
            F.binary_cross_entropy_with_logits(a, b.sigmoid()),
            F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"),
        ),
        lambda: (R(3, 4), R(3, 4)),
    ),
    "classes": (
        lambda a, y: (F.cross_entropy(a, y), F.nll_loss(a.log_softmax(1), y)),
        lambda: (R(3, 4), torch.tensor([0, 3, 1])),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {}
UPSTREAM = ["distances", "bilinear"]


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
