"""What a schedule is asked with, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.compiler.schedules.choice import Choice
from service.compiler.schedules.vector_unit import VectorUnit
from service.errors import JsonObject
from service.runtime.session import Array


@dataclass(frozen=True)
class Situation:
    """Where a function stands: the CPU, whether loops may use threads, and the inputs that are constants.

    `constants` has the values of each input that is a constant wherever the function is called, one for each call.
    `wanted` is taken where it is one of the kernel's candidates; `winograd` allows the kernel of that name.
    """

    unit: VectorUnit
    parallel: bool = True
    constants: Mapping[Any, tuple[Array, ...]] = field(default_factory=dict)
    wanted: Choice | None = None
    winograd: bool = True


@dataclass(frozen=True)
class Kernel:
    """A scheduled function in place of another with the same parameters.

    `packings` turns constants into the form in which the kernel reads them, by the position of the parameter.
    `candidates` are all choices that may be `wanted` for it, the rule's first; none where there is nothing to choose.
    """

    name: str
    function: Any
    parameters: JsonObject
    flops: int = 0
    packings: Mapping[int, Callable[[Array], Array]] = field(default_factory=dict)
    candidates: tuple[Choice, ...] = ()
