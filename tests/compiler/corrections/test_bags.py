"""Bags of embeddings, in every mode."""

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
        f"{mode} from offsets": (
            nn.EmbeddingBag(10, 4, mode=mode),
            lambda: (torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4])),
        )
        for mode in ("sum", "mean", "max")
    },
    "with padding": (
        nn.EmbeddingBag(10, 4, mode="sum", padding_idx=2),
        lambda: (torch.tensor([[1, 2, 3], [0, 2, 9]]),),
    ),
    "an empty bag and a last offset": (
        nn.EmbeddingBag(10, 4, mode="mean", include_last_offset=True),
        lambda: (torch.tensor([1, 2, 4]), torch.tensor([0, 2, 2, 3])),
    ),
    "weighted": (
        lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        lambda: (R(10, 4), torch.tensor([1, 2, 4]), torch.tensor([0, 1]), R(3)),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {}
UPSTREAM = ["sum from offsets"]


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
