"""Writing at indices, with and without accumulation, and through masks."""

from __future__ import annotations

import pytest
import torch

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

pytestmark = pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter:UserWarning")

nan, inf = float("nan"), float("inf")
R = torch.randn

TABLE = R(6, 5, generator=torch.Generator().manual_seed(2))

PROGRAMS = {
    **{
        f"{reduce} of {'all' if old else 'new'} elements": (
            lambda x, index, new, reduce=reduce, old=old: (
                x.scatter_reduce(0, index, new, reduce, include_self=old),
                (x * 10).long().scatter_reduce(0, index, (new * 10).long(), reduce, include_self=old),
            ),
            lambda: (R(6), torch.tensor([0, 2, 2]), R(3)),
        )
        for reduce, old in (("mean", True), ("mean", False), ("sum", False), ("prod", False), ("amax", False))
    },
    "scatter": (
        lambda x, i, s: (
            x.scatter(1, i, s),
            x.scatter(1, i, 9.0),
            x.scatter_add(1, i, s),
            x.scatter_reduce(1, i, s, "amax"),
            x.scatter_reduce(1, i, s, "prod"),
            x.scatter(1, i, s, reduce="add"),
        ),
        lambda: (TABLE, torch.stack([torch.randperm(5) for _ in range(3)]), R(6, 5)),
    ),
    "rows": (
        lambda x, i, s: (
            x.index_add(0, i, s),
            x.index_add(0, i, s, alpha=2),
            x.index_copy(0, i[:3], s[:3]),
            x.index_fill(0, i, 7.0),
        ),
        lambda: (TABLE, torch.tensor([0, 2, 5, 2]), R(4, 5)),
    ),
    "index_put": (
        lambda x, i, s: (
            x.index_put((i,), s),
            x.index_put((i, i.clamp(-5, 4)), torch.tensor(5.0)),
            x.index_put((i,), s, accumulate=True),
        ),
        lambda: (TABLE, torch.tensor([0, -1, 3]), R(3, 5)),
    ),
    "accumulated twice": (
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        lambda: (TABLE, torch.tensor([1, 1, -5]), R(3, 5)),
    ),
    "masks": (
        lambda x, m: (
            x.index_put((m,), torch.tensor(-1.0)),
            x.masked_fill(x > 0, 2.0),
            x.index_put((x > 0,), torch.tensor(0.0)),
        ),
        lambda: (TABLE, torch.tensor([True, False, True, False, True, True])),
    ),
    "integers": (
        lambda x, i: x.scatter_add(0, i, x[:2]),
        lambda: (torch.arange(15).reshape(3, 5), torch.tensor([[0, 1, 2, 0, 1], [0, 0, 0, 2, 2]])),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {}
UPSTREAM = ["scatter", "rows"]


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
