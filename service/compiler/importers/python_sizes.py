"""How large Python's own numbers and sequences may grow while a graph is followed: one line can ask for years of work.

Tensors are not counted here: they are shapes without values then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.errors import ImportFailed

# No size, index or scalar of a model has more.
MAX_BITS = 1024
MAX_ITEMS = 1 << 20


def check_sizes(name: str, arguments: Sequence[Any]) -> None:
    """Whether the function `name` of the allowlist may be called with these. Raises ImportFailed."""
    operation = name.removeprefix("operator.i").removeprefix("operator.")
    if name == "math.prod" and arguments and isinstance(arguments[0], list | tuple):
        _check(sum(_bits(each) for each in arguments[0]), MAX_BITS, "bits", name)
    if name == "builtins.range" and all(isinstance(each, int) for each in arguments):
        items = len(range(*arguments)) if all(_bits(each) < 63 for each in arguments) else MAX_ITEMS + 1
        _check(items, MAX_ITEMS, "elements", name)
    if len(arguments) != 2:
        return
    a, b = arguments
    if isinstance(a, int) and isinstance(b, int):
        bits = {"pow": _bits(a) * max(b, 1), "lshift": _bits(a) + max(b, 0), "mul": _bits(a) + _bits(b)}
        _check(bits.get(operation, 0), MAX_BITS, "bits", name)
    elif operation == "mul":
        for sequence, times in ((a, b), (b, a)):
            if isinstance(sequence, list | tuple | str) and isinstance(times, int):
                _check(len(sequence) * max(times, 0), MAX_ITEMS, "elements", name)
    elif operation in ("add", "concat") and isinstance(a, list | tuple) and isinstance(b, list | tuple):
        _check(len(a) + len(b), MAX_ITEMS, "elements", name)


def _bits(value: Any) -> int:
    return int(value).bit_length() if isinstance(value, int) else 0


def _check(found: int, limit: int, unit: str, name: str) -> None:
    if found > limit:
        raise ImportFailed(
            f"The model's Python makes a value of more than {limit} {unit} by {name}. Compute it in tensors.", step=0
        )
