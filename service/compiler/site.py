"""Where in the user's model a call of an operator stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch.fx

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)')


@dataclass(frozen=True)
class Site:
    """The operator's full name, the path of the module that calls it, and the line of the user's source."""

    operator: str
    module: str | None
    source: str | None

    @classmethod
    def of(cls, node: torch.fx.Node) -> Site:
        stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
        path = next((entry[0] for entry in reversed(list(stack.values())) if entry[0]), None)
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
        source = f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}: {own[-1][2].strip()}" if own else None
        # A model that was traced step by step says of each step where it stands.
        noted: dict[str, Any] = node.meta.get("custom") or {}
        return cls(operator_name(node.target), path, noted.get("source_line") or source)

    def __str__(self) -> str:
        place = "" if self.module is None else f" in {self.module!r}"
        return f"{self.operator}{place}" + ("" if self.source is None else f" ({self.source})")

    def to_json(self) -> dict[str, str | None]:
        return {"operator": self.operator, "module": self.module, "source": self.source}


def operator_name(target: Any) -> str:
    """The full name of what a node calls: ``aten.add.Tensor``, or a function's name."""
    return str(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))
