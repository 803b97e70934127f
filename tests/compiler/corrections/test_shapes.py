"""Views, joins, splits, padding and writing through views."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn


def written(write):
    def forward(x):
        y = x.clone()
        write(y)
        return y

    return forward


def several(y):
    y[:, 1:3].mul_(2)
    y[0].zero_()
    y[..., -1].fill_(7)
    y.view(-1)[3:6].add_(1)
    y.t()[0].sub_(5)
    y.diagonal().add_(1)
    y[:, 1:5:2] = 0.5
    y[y > 3] = -1.0
    y[0] = y[1].clone()


PROGRAMS = {
    "negative and stepped": (
        lambda x: (x[-1], x[:, -2], x[..., -6], x[:, 1:-1], x[::2], x[:, -3:], x[..., 1:100], x[5:], x[:, ::3, 1::2]),
        lambda: (R(4, 5, 6),),
    ),
    "views": (
        lambda x: (
            x.view(-1),
            x.reshape(2, -1),
            x.permute(2, 0, 1),
            x.mT,
            x.flatten(1),
            x.unsqueeze(-1),
            x.expand(2, 4, 5, 6),
            x.movedim(0, 2),
        ),
        lambda: (R(4, 5, 6),),
    ),
    "joins": (
        lambda x: (
            torch.cat([x, x], -1),
            torch.stack([x, x], 1),
            torch.cat([x[:0], x]),
            torch.cat([x, x.double()]),
            torch.cat([torch.zeros(0), x.view(-1)]),
        ),
        lambda: (R(4, 5),),
    ),
    "splits": (
        lambda x: (x.split(2), x.split([1, 4], 1), x.chunk(3, 2), x.unbind(1), x.tensor_split(3, 2)),
        lambda: (R(4, 5, 6),),
    ),
    "turns": (
        lambda x: (
            x.flip(0, 2),
            x.roll((1, -2), (0, 2)),
            x.roll(3),
            torch.rot90(x),
            x.repeat(2, 1, 3),
            x.repeat_interleave(2, 1),
            x.unfold(1, 3, 2),
        ),
        lambda: (R(4, 5, 6),),
    ),
    "diagonals": (
        lambda x: (
            x.diagonal(1, 1, 2),
            x.diagonal(-1, 0, 2),
            torch.diag_embed(x[0]),
            x.tril(-1),
            x.triu(1),
            torch.trace(x[0]),
        ),
        lambda: (R(4, 5, 6),),
    ),
    "padding": (
        lambda x: (
            F.pad(x, (1, -1, 0, 2), value=3.0),
            F.pad(x, (1, 2, 2, 1), mode="reflect"),
            F.pad(x, (1, 2, 3, 1), mode="replicate"),
            F.pad(x, (1, 2, 2, 1), mode="circular"),
        ),
        lambda: (R(2, 3, 5, 6),),
    ),
    "writing through views": (written(several), lambda: (R(5, 5),)),
    "products of indices": (
        lambda a, b: (
            torch.einsum("bij,bjk->bik", a, b),
            torch.einsum("bij,bkj->ik", a, a),
            torch.einsum("bii->bi", a @ a.mT),
        ),
        lambda: (R(2, 3, 4), R(2, 4, 5)),
    ),
    "outputs that are inputs, constants, repeated, None and nested": (
        lambda x: (x, x, None, {"a": [x * 2, torch.tensor(5.0)]}, x.view(-1)),
        lambda: (R(2, 2),),
    ),
    "without elements": (
        lambda x: (x + 1, x.sum(), x.sum(1), torch.cat([x, x]), x.reshape(3, 0)),
        lambda: (torch.zeros(0, 3),),
    ),
    "without dimensions": (
        lambda x, y: (x * y, x.exp(), x.sum(), x.view(1), x.expand(3)),
        lambda: (torch.tensor(2.0), torch.tensor(3)),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {}
UPSTREAM = ["negative and stepped"]


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
