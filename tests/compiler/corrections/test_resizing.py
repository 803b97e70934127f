"""Interpolation and sampling in every mode."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn


def resized(mode, **options):
    sized = lambda x: F.interpolate(x, size=[5, 7, 11][: x.ndim - 2], mode=mode, **options)  # noqa: E731
    scaled = lambda x: F.interpolate(x, scale_factor=1.7, mode=mode, **options)  # noqa: E731
    return lambda x: (sized(x), scaled(x), F.interpolate(x, scale_factor=2, mode=mode, **options))


def infinite(*shape):
    x = R(*shape)
    x.view(-1)[x.numel() // 2] = float("inf")
    return x


PROGRAMS = {
    "infinite pixels": (
        lambda x: (
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(3, 7), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(3, 4), mode="bicubic", antialias=True),
            F.interpolate(x, scale_factor=0.6, mode="bilinear", antialias=True),
        ),
        lambda: (infinite(1, 2, 7, 8),),
    ),
    "operators of a trace": (
        lambda x: (
            torch.ops.aten.upsample_nearest2d.default(x, [6, 5]),
            torch.ops.aten._upsample_nearest_exact2d.default(x, [6, 5], 1.5, None),
        ),
        lambda: (R(1, 2, 4, 7),),
    ),
    **{f"1d {mode}": (resized(mode), lambda: (R(2, 3, 8),)) for mode in ("nearest", "linear", "nearest-exact")},
    **{
        f"2d {mode}": (resized(mode), lambda: (R(1, 2, 7, 8),))
        for mode in ("nearest", "bilinear", "bicubic", "nearest-exact", "area")
    },
    **{f"3d {mode}": (resized(mode), lambda: (R(1, 2, 4, 5, 3),)) for mode in ("nearest", "trilinear")},
    **{
        f"{mode} with aligned corners": (resized(mode, align_corners=True), lambda: (R(1, 2, 7, 8),))
        for mode in ("bilinear", "bicubic")
    },
    "antialiased": (
        lambda x: (
            F.interpolate(x, size=(5, 3), mode="bilinear", antialias=True),
            F.interpolate(x, size=(12, 5), mode="bicubic", antialias=True),
        ),
        lambda: (R(1, 2, 9, 8),),
    ),
    **{
        f"sampled {mode} {padding}": (
            lambda v, g, m=mode, p=padding: (F.grid_sample(v, g, m, p, True), F.grid_sample(v, g, m, p, False)),
            lambda: (R(2, 3, 5, 6), torch.rand(2, 4, 4, 2) * 3 - 1.5),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
    },
    "shuffled": (
        lambda x: (
            F.pixel_shuffle(x, 2),
            F.pixel_unshuffle(x, 2),
            F.affine_grid(x[0, :6, 0, 0].reshape(1, 2, 3), (1, 3, 4, 5), align_corners=False),
        ),
        lambda: (R(1, 8, 4, 6),),
    ),
}
TOLERANCES: dict[str, dict[str, float]] = {name: {"atol": 1e-3} for name in PROGRAMS}
UPSTREAM = ["2d nearest", "antialiased"]


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
