"""grid_sample in every mode, with places at NaN, at infinity and far outside."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

from service.compiler.corrections.sampling import DECOMPOSITIONS
from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
MODES = list(itertools.product((0, 1, 2), (0, 1, 2), (True, False)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rank", [2, 3])
def test_every_mode_is_eager_s(rank: int, dtype: torch.dtype) -> None:
    operator = getattr(torch.ops.aten, f"grid_sampler_{rank}d")
    rule = DECOMPOSITIONS[f"aten.grid_sampler_{rank}d.default"]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *[5, 6, 4][:rank], generator=generator).to(dtype)
    plain = (torch.rand(2, *[7, 6, 3][:rank], rank, generator=generator) * 2.8 - 1.4).to(dtype)
    tolerance = 1e-4 if dtype.itemsize > 2 else 2e-2
    for (mode, padding, align), special in itertools.product(MODES, (None, nan, inf, -inf)):
        if rank == 3 and (mode == 2 or (dtype is torch.bfloat16 and special is not None)):
            continue
        grid = plain.clone()
        if special is not None:
            grid.view(-1)[::17] = special
        torch.testing.assert_close(
            rule(x, grid, mode, padding, align), operator(x, grid, mode, padding, align),
            rtol=tolerance, atol=tolerance, equal_nan=True,
        )  # fmt: skip


PROGRAMS = {
    "bilinear": (lambda x, g: F.grid_sample(x, g, align_corners=False), (1, 2, 4, 5), (1, 3, 3, 2)),
    "nearest and border": (
        lambda x, g: F.grid_sample(x, g, mode="nearest", padding_mode="border", align_corners=True),
        (1, 2, 4, 5),
        (1, 3, 3, 2),
    ),
    "bicubic and reflection": (
        lambda x, g: F.grid_sample(x, g, mode="bicubic", padding_mode="reflection", align_corners=False),
        (1, 2, 4, 5),
        (1, 3, 3, 2),
    ),
    "in three dimensions": (lambda x, g: F.grid_sample(x, g, align_corners=True), (1, 2, 3, 4, 5), (1, 2, 2, 2, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kind_gives_eager_s_answer(name: str) -> None:
    torch.manual_seed(0)
    function, image, grid = PROGRAMS[name]
    places = torch.rand(grid) * 2 - 1
    places.view(-1)[0] = nan
    outcome = try_program(function, (torch.randn(image), places))
    assert outcome.kind == "equal", outcome.problem.detail


def test_the_correction_is_still_needed() -> None:
    function, image, grid = PROGRAMS["in three dimensions"]
    assert not upstream_is_right(function, (torch.randn(image), torch.rand(grid) * 2 - 1))
