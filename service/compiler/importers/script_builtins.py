"""TorchScript's operators on numbers, strings and lists, as Python has them; sizes may be symbols."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch


def is_number(value: Any) -> bool:
    """Whether it is a number or a symbol for one."""
    return isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def _add(left: Any, right: Any, alpha: Any = 1) -> Any:
    return left + right if isinstance(left, (list, str)) else left + alpha * right


def _subtract(left: Any, right: Any, alpha: Any = 1) -> Any:
    return left - alpha * right


def _divide(left: Any, right: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return left // right
    return math.trunc(left / right) if rounding_mode == "trunc" else left / right


def _slice(values: Any, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return values[start:end:step]


def _range_length(low: Any, high: Any, step: Any) -> Any:
    return max(0, -(-(high - low) // step))


def _pop(values: list[Any], index: int = -1) -> Any:
    return values.pop(index)


def _format(text: str, *values: Any) -> str:
    return text.replace("{}", "%s") % tuple(map(str, values)) if text.count("{}") == len(values) else text


def _tensor(value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> torch.Tensor:
    del device, requires_grad
    return torch.tensor(value, dtype=_dtype(dtype))


def _dtype(number: Any) -> Any:
    """TorchScript writes dtypes as numbers."""
    if not isinstance(number, int):
        return number
    return {
        0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16,
        6: torch.float32, 7: torch.float64, 11: torch.bool, 15: torch.bfloat16,
    }[number]  # fmt: skip


BUILTINS: dict[str, Callable[..., Any]] = {
    "aten::add": _add,
    "aten::sub": _subtract,
    "aten::mul": lambda left, right: left * right,
    "aten::div": _divide,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::__round_to_zero_floordiv": lambda left, right: math.trunc(left / right),
    "aten::neg": operator.neg,
    "aten::pow": operator.pow,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__not__": operator.not_,
    "aten::__and__": lambda left, right: left and right if isinstance(left, bool) else left & right,
    "aten::__or__": lambda left, right: left or right if isinstance(left, bool) else left | right,
    "aten::__is__": lambda left, right: left is right,
    "aten::__isnot__": lambda left, right: left is not right,
    "aten::__contains__": lambda values, value: value in values,
    "aten::__getitem__": lambda values, index: values[index],
    "aten::_set_item": lambda values, index, value: values.__setitem__(index, value),
    "aten::slice": _slice,
    "aten::len": len,
    "aten::append": lambda values, value: values.append(value) or values,
    "aten::extend": lambda values, more: values.extend(more),
    "aten::pop": _pop,
    "aten::insert": lambda values, index, value: values.insert(index, value),
    "aten::list": list,
    "aten::copy": list,
    "aten::keys": list,
    "aten::values": lambda mapping: list(mapping.values()),
    "aten::items": lambda mapping: list(mapping.items()),
    "aten::Bool": bool,
    "aten::Int": lambda value: value if isinstance(value, torch.SymInt) else int(value),
    "aten::Float": lambda value: value if isinstance(value, torch.SymFloat) else float(value),
    "aten::str": str,
    "aten::IntImplicit": lambda value: value,
    "aten::FloatImplicit": lambda value: value,
    "aten::ScalarImplicit": lambda value: value,
    "aten::floor": math.floor,
    "aten::ceil": math.ceil,
    "aten::sqrt": lambda value: torch.sym_sqrt(value) if isinstance(value, torch.SymInt) else math.sqrt(value),
    "aten::log": math.log,
    "aten::exp": math.exp,
    "aten::abs": abs,
    "aten::all": all,
    "aten::any": any,
    "aten::max": max,
    "aten::min": min,
    "prim::max": max,
    "prim::min": min,
    "prim::abs": abs,
    "prim::rangelist": lambda count: list(range(count)),
    "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::format": _format,
    "aten::percentFormat": lambda text, *values: text % values,
    "aten::join": lambda text, values: text.join(values),
    "aten::startswith": lambda text, prefix, *_: text.startswith(prefix),
    "aten::endswith": lambda text, suffix, *_: text.endswith(suffix),
    "aten::lower": lambda text: text.lower(),
    "aten::upper": lambda text: text.upper(),
    "aten::to": lambda value, *_: value,
    "aten::tensor": _tensor,
    "aten::as_tensor": _tensor,
    "aten::scalar_tensor": lambda value, dtype=None, *_: _tensor(value, dtype),
    "aten::warn": lambda *_: None,
    "aten::set_grad_enabled": lambda *_: None,
    "aten::is_scripting": lambda: True,
    "aten::is_autocast_enabled": lambda: False,
    "aten::is_autocast_cpu_enabled": lambda: False,
    "aten::device": torch.device,
}
