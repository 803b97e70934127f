"""What people write on the command line, read: recipes, inputs, sizes, steps. ValueError says what the form is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relaxd.calls import Passes
from relaxd.nouns import TensorSpec


def read_passes(text: str, presets: Iterable[str]) -> Passes:
    """``course`` (a preset), ``fuse_ops,fuse_tir``, a JSON list, ``@recipe.json``; empty for no passes."""
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    if text in presets:
        return text
    return [name.strip() for name in text.split(",") if name.strip()]


def read_input(text: str) -> TensorSpec:
    """``x=batch,784:float32`` as a declared input; float32 where the dtype is left out, a scalar without sizes."""
    name, equals, rest = text.partition("=")
    shape, _, dtype = rest.partition(":")
    if not name or not equals:
        raise ValueError(f"an input is written name=2,3:dtype, as x=batch,784:float32; not {text!r}")
    sizes = [size.strip() for size in shape.split(",") if size.strip()]
    return TensorSpec(name, tuple(int(size) if size.isdecimal() else size for size in sizes), dtype or "float32")


def read_sizes(text: str) -> dict[str, int]:
    """``batch:8,length:128`` as the sizes of symbols."""
    sizes = {}
    for entry in text.split(","):
        name, _, size = entry.partition(":")
        if not name.strip() or not size.strip().isdecimal():
            raise ValueError(f"sizes are written batch:8,length:128; not {text!r}")
        sizes[name.strip()] = int(size)
    return sizes


def read_base(text: str) -> tuple[str, int]:
    """``ID:STEP`` as the step of a Compilation to go on from."""
    compilation, _, step = text.rpartition(":")
    if not compilation or not step.isdecimal():
        raise ValueError(f"where to go on from is written ID:STEP; not {text!r}")
    return compilation, int(step)


def read_point(text: str) -> str | int:
    """A step's index, or the name of a stage."""
    return int(text) if text.isdecimal() else text


def plain(value: Any) -> Any:
    """Nested lists of numbers as JSON has them: NaN and infinities as the strings of the server."""
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    return value
