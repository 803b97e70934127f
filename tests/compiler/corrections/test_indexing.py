"""Reading at indices: negative, paired, broadcast; outside the range the call fails."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

TABLE = R(6, 5, generator=torch.Generator().manual_seed(2))
ROWS = torch.tensor([0, -1, 3, -6])
OUTSIDE = {
    name: (function, (TABLE, torch.zeros_like(wrong)), (TABLE, wrong))
    for name, function, wrong in (
        ("index", lambda x, i: x[i], torch.tensor([0, 7])),
        ("negative index", lambda x, i: x[:, i], torch.tensor([-6])),
        ("gather", lambda x, i: x.gather(0, i), torch.tensor([[6, 0, 0, 0, 0]])),
        ("index_select", lambda x, i: x.index_select(1, i), torch.tensor([-1])),
        ("embedding", lambda x, i: F.embedding(i, x), torch.tensor([-1])),
        ("embedding far out", lambda x, i: F.embedding(i, x), torch.tensor([2**62])),
        ("take", lambda x, i: x.take(i), torch.tensor([30])),
        ("index_put", lambda x, i: x.index_put((i,), torch.tensor(1.0)), torch.tensor([6])),
        ("scatter", lambda x, i: x.scatter(0, i, 1.0), torch.tensor([[99, 0, 0, 0, 0]])),
        ("index_add", lambda x, i: x.index_add(0, i, x[:1]), torch.tensor([-1])),
        ("index_copy", lambda x, i: x.index_copy(0, i, x[:1]), torch.tensor([-1])),
        ("in an expression", lambda x, i: (x * 2)[i + 3].sum(), torch.tensor([5])),
    )
}

PROGRAMS = {
    "rows": (
        lambda x, i: (
            x[i],
            x[:, i.clamp(-5, 4)],
            x[i[:, None], i.clamp(-5, 4)[None]],
            x[i.view(2, 2)],
            x[..., i.clamp(-5, 4)],
        ),
        lambda: (TABLE, ROWS),
    ),
    "pairs": (
        lambda x, i: (x[i, :, i], x[:, i, i], x[i, i, i], x[i, 1:3], x[:, i, None]),
        lambda: (R(4, 4, 4), torch.tensor([0, -1, 2])),
    ),
    "gathers": (
        lambda x, i: (x.gather(1, i), x.take(i), x.index_select(0, i[0]), torch.take_along_dim(x[:3], i, 1)),
        lambda: (TABLE, torch.randint(0, 5, (3, 5))),
    ),
    "take from the end": (lambda x, i: x.take(i), lambda: (TABLE, torch.tensor([-1, -30, 5]))),
    "embedding": (nn.Embedding(10, 4, padding_idx=0), lambda: (torch.tensor([[1, 2], [0, 9]]),)),
    "small integers": (lambda x, i: x[i], lambda: (TABLE, torch.tensor([1, -2], dtype=torch.int32))),
    "one hot": (lambda i: F.one_hot(i, 5), lambda: (torch.tensor([0, 4, 2]),)),
    "buckets": (
        lambda x: (
            torch.bucketize(x, torch.tensor([0.0, 1.0, 2.0])),
            torch.bucketize(x, torch.tensor([0.0, 1.0, 2.0]), right=True),
        ),
        lambda: (torch.tensor([-1.0, 0.0, 0.5, 1.0, nan, 5.0]),),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {}
UPSTREAM = ["rows", "pairs"]


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


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_outside_its_range_fails_the_call_and_names_the_operator(name: str) -> None:
    function, right, wrong = OUTSIDE[name]
    outcome = try_program(function, right, run=wrong)
    assert outcome.kind == "refused"
    assert "aten." in outcome.problem.detail
    assert "range" in outcome.problem.detail
