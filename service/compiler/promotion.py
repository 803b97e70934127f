"""Which dtype PyTorch computes in: its own rules, asked of itself."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from service.compiler.translation import Arguments, Translation

_HALVES = (torch.float16, torch.bfloat16)


def value_of(argument: Any) -> Any:
    """What the rules of promotion look at: a fake tensor or a number."""
    value = argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
    if isinstance(value, torch.SymInt):
        return 1
    if isinstance(value, torch.SymFloat):
        return 1.0
    return value


def common_dtype(*arguments: Any, kind: KIND = KIND.DEFAULT) -> torch.dtype:
    """The dtype in which an elementwise operator computes; halves are computed in float32, as eager does."""
    computed: torch.dtype = elementwise_dtypes(*map(value_of, arguments), type_promotion_kind=kind)[0]
    return widened(computed)


def widened(dtype: torch.dtype) -> torch.dtype:
    """float32 for the halves, every other dtype itself."""
    return torch.float32 if dtype in _HALVES else dtype


def narrowed(translation: Translation, a: Arguments, expr: Any, computed: torch.dtype) -> Any:
    """`expr`, which has the dtype `computed`, in the dtype of the result."""
    return translation.cast(translation.emit(expr), computed, a.result.dtype)
