"""How each ATen operator is computed, one operator family a file. A new family is a new file here and nothing else.

A file defines `CONVERTERS`, from the full names of operators (``aten.add.Tensor``) to their converters, and may define
`DECOMPOSITIONS`, from names to functions that compute the same of simpler operators, and `KEPT`, the names of
operators that PyTorch must not decompose. What stands in no file is refused: no operator goes through a conversion of
TVM's that was not held against eager. The docstring of a file says what TVM 0.27 gets wrong in its family.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from service.compiler.translation import Converter


def family_names() -> list[str]:
    """The names of all families, sorted, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@functools.cache
def converters() -> dict[str, Converter]:
    """The converter of every supported operator. Raises LookupError where two families claim one."""
    return _merged("CONVERTERS")


@functools.cache
def decompositions() -> dict[str, Callable[..., Any]]:
    """What PyTorch is given in place of its own decompositions."""
    return _merged("DECOMPOSITIONS")


@functools.cache
def kept() -> frozenset[str]:
    """The operators that stay whole because a family converts them."""
    return frozenset(name for family in _families() for name in getattr(family, "KEPT", ()))


def _families() -> list[Any]:
    return [importlib.import_module(f"{__name__}.{name}") for name in family_names()]


def _merged(table: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for family in _families():
        for name, entry in getattr(family, table, {}).items():
            if name in merged:
                raise LookupError(f"{family.__name__}: {name} stands in another family, too")
            merged[name] = entry
    return merged
