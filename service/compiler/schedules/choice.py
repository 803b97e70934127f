"""What may be chosen for a kernel: tiles and orders of loops. Every choice computes the same, at another speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.compiler.schedules.tile import best_rows
from service.compiler.schedules.vector_unit import VectorUnit

# The parameters of one kernel by name.
Choice = Mapping[str, int]

_WIDEST = 4


def chosen(wanted: Mapping[str, Any] | None, candidates: Sequence[Choice]) -> Choice:
    """The candidate that is `wanted`; the first, which is the rule's, where none is."""
    return next((each for each in candidates if each == wanted), candidates[0])


def with_others(rule: Choice, others: Sequence[Choice]) -> tuple[Choice, ...]:
    """The rule's choice first, then the others, each once."""
    candidates = [rule]
    for each in others:
        if each not in candidates:
            candidates.append(each)
    return tuple(candidates)


def tile_sizes(unit: VectorUnit, vectors: int, usual: int) -> list[tuple[int, int]]:
    """Sizes of tiles, rows and vectors, for a matrix `vectors` wide: up to what the registers hold, and less.

    Those that are nearly as wide as is `usual` come first, since the time may not do for all.
    """
    sizes: list[tuple[int, int]] = []
    for width in sorted(range(1, min(vectors, _WIDEST) + 1), key=lambda each: abs(each - usual)):
        most = best_rows(unit, width)
        sizes += [(rows, width) for rows in dict.fromkeys((most, most - 1, most * 2 // 3, most // 2)) if rows > 0]
    return sizes
