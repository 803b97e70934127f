"""Attention in every layout, mask and scale; it has no converters, but must stay right through decompositions."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.cases.programs import try_program
from tests.compiler.corrections.uncorrected import upstream_is_right

nan, inf = float("nan"), float("inf")
R = torch.randn

MASK = torch.tensor([[True, False, True, True, False, True], [False] * 6, [True] * 6])
PAD = torch.tensor([[False] * 5, [False, False, True, True, True]])
attend = F.scaled_dot_product_attention


def heads(steps=6):
    return (R(2, 4, 3, 8), R(2, 4, steps, 8), R(2, 4, steps, 8))


def multihead(**options):
    return nn.MultiheadAttention(8, 2, **options).eval()


PADDED, CAUSAL = multihead(batch_first=True), multihead(batch_first=True)

PROGRAMS = {
    "plain, causal and scaled": (
        lambda q, k, v: (attend(q, k, v), attend(q, k, v, is_causal=True), attend(q, k, v, scale=0.3)),
        heads,
    ),
    "bool mask with a row of nothing": (lambda q, k, v: attend(q, k, v, attn_mask=MASK), heads),
    "float mask": (lambda q, k, v, m: attend(q, k, v, attn_mask=m), lambda: (*heads(), R(2, 1, 3, 6))),
    "mask of infinities": (lambda q, k, v: attend(q, k, v, attn_mask=torch.where(MASK, 0.0, -inf)), heads),
    "three dimensions": (lambda q, k, v: attend(q[0], k[0], v[0]), heads),
    "grouped queries": (lambda q, k, v: attend(q, k[:, :2], v[:, :2], enable_gqa=True), heads),
    "float64": (lambda q, k, v: attend(q.double(), k.double(), v.double()), heads),
    "bfloat16": (lambda q, k, v: attend(q.bfloat16(), k.bfloat16(), v.bfloat16()), heads),
    "several heads": (multihead(), lambda: (R(3, 2, 8), R(4, 2, 8), R(4, 2, 8))),
    "other widths": (multihead(kdim=6, vdim=5, bias=False), lambda: (R(3, 2, 8), R(4, 2, 6), R(4, 2, 5))),
    "padding": (lambda x: PADDED(x, x, x, key_padding_mask=PAD), lambda: (R(2, 5, 8),)),
    "all padding": (
        lambda x: PADDED(x, x, x, key_padding_mask=torch.ones(2, 5, dtype=torch.bool)),
        lambda: (R(2, 5, 8),),
    ),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), lambda: (R(2, 5, 8),)),
    "decoder": (nn.TransformerDecoderLayer(8, 2, 16).eval(), lambda: (R(4, 2, 8), R(5, 2, 8))),
}
TOLERANCES: dict[str, dict[str, float]] = {"bfloat16": {"rtol": 3e-2, "atol": 3e-2}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kind_gives_eager_s_answer(name: str) -> None:
    torch.manual_seed(0)
    function, args = PROGRAMS[name]
    outcome = try_program(function, args(), **TOLERANCES.get(name, {}))
    assert outcome.kind == "equal", outcome.problem.detail


def test_the_correction_is_still_needed() -> None:
    inputs = tuple(torch.randn(1, 2, 4, 8, dtype=torch.float64) for _ in range(3))
    assert not upstream_is_right(torch.nn.functional.scaled_dot_product_attention, inputs), (
        "TVM gets attention in float64 right: see whether its correction can go"
    )
