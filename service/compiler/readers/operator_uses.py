"""Which operators a model uses and where in the user's code: what a refusal and a preflight say about them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from service.errors import ImportFailed, JsonObject

_FRAME = re.compile(r'File "([^"]*)", line (\d+)')
# Frames below these are PyTorch's own; the user's line is the last one above them.
_NOT_THE_USERS = ("/torch/", "torch/", "<eval_with_key>")


@dataclass(frozen=True)
class Use:
    """One call of an operator. `module_path` is the dotted path in the user's model, "" for the model itself."""

    operator: str
    module_path: str | None = None
    source_line: str | None = None


def user_line(stack_trace: str | None) -> str | None:
    """``FILE:LINE: CODE`` of the user's innermost frame in a stack trace as torch.export writes it."""
    found = None
    lines = (stack_trace or "").splitlines()
    for index, line in enumerate(lines):
        frame = _FRAME.search(line)
        if frame is None:
            continue
        code = lines[index + 1].strip() if index + 1 < len(lines) and not _FRAME.search(lines[index + 1]) else ""
        mine = not any(frame[1].startswith(part) or part in frame[1] for part in _NOT_THE_USERS)
        if mine or found is None:
            name = frame[1].rpartition("/")[2]
            found = f"{name}:{frame[2]}: {code}"[:300] if code else f"{name}:{frame[2]}"
    return found


def unsupported_list(uses: Iterable[Use], hints: JsonObject | None = None) -> list[JsonObject]:
    """One entry an operator, with the number of its uses and the place of the first, in the model's order."""
    entries: dict[str, JsonObject] = {}
    for use in uses:
        entry = entries.setdefault(
            use.operator,
            {
                "operator": use.operator,
                "count": 0,
                "module_path": use.module_path,
                "source_line": use.source_line,
                "hint": (hints or {}).get(use.operator) or default_hint(use.operator),
            },
        )
        entry["count"] += 1
    return list(entries.values())


def default_hint(operator: str) -> str:
    """What to do about an operator that cannot be taken, by its name alone."""
    namespace = operator.partition(".")[0]
    if namespace not in ("aten", "prims", "higher_order"):
        return "It is a custom operator, whose code relaxd does not have: write it with PyTorch's own operators."
    if any(word in operator for word in ("rand", "bernoulli", "multinomial", "dropout", "normal_", "uniform_")):
        return "It draws random numbers: call model.eval(), or take the random numbers as an input."
    return "Write it with other operators, or compute its result before the model and pass it as an input."


def refusal(uses: Iterable[Use]) -> ImportFailed:
    """The Problem for operators that cannot be compiled, all of them at once."""
    unsupported = unsupported_list(uses)
    names = sorted(entry["operator"] for entry in unsupported)
    counts = {entry["operator"]: entry["count"] for entry in unsupported}
    listed = ", ".join(f"{name} ({counts[name]})" for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    first = unsupported[0]
    module = f" in {first['module_path']!r}" if first["module_path"] else ""
    source = f" ({first['source_line']})" if first["source_line"] else ""
    return ImportFailed(
        f"These operators cannot be compiled: {listed}{more}. The first stands at {first['operator']}{module}{source}. "
        f"{first['hint']}",
        step=0,
        operators=names,
        unsupported=unsupported,
    )
