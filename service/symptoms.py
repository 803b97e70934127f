"""What a bisection looks for, and what it finds: frozen values that cross the process boundary as JSON."""

from __future__ import annotations

import dataclasses
import enum
import re
from dataclasses import dataclass, field
from typing import Any

from service.errors import JsonObject
from service.nouns import PassSpec

# In the work folder: the part of a model that an attempt tries, as a .pt2.
REDUCED_FILE = "reduced.pt2"
MAX_MESSAGE = 1000
MAX_NAME = 200


class SymptomKind(enum.StrEnum):
    """How a Compilation goes wrong."""

    FAILURE = "failure"
    CRASH = "crash"
    HANG = "hang"
    WRONG = "wrong"
    SLOW = "slow"


@dataclass(frozen=True)
class Symptom:
    """What is looked for. With `runs` it is seen only where the module of a step is run, as a crash of a kernel is.

    A slow one is slow beside the passes of `against` on the same model, by `factor`. `special` asks for what differs on
    special values only, too.
    """

    kind: SymptomKind
    runs: bool = False
    special: bool = True
    factor: float = 1.5
    against: tuple[PassSpec, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            **dataclasses.asdict(self),
            "kind": self.kind.value,
            "against": [each.to_json() for each in self.against],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Symptom:
        against = tuple(PassSpec(spec["name"], spec["options"]) for spec in value["against"])
        return cls(SymptomKind(value["kind"]), value["runs"], value["special"], value["factor"], against)


@dataclass(frozen=True)
class Finding:
    """Where a symptom shows first. `step` 0 is the import, one more than there are passes the build.

    `inner_pass` is the pass of TVM inside of it, `function` what was transformed, both where they are known; `message`
    says what happened, `problem` and `signal` how it ended. `node` is the first node of the model whose value is wrong,
    `binding` what stands for it; `before_ms` and `after_ms` are times of a run.
    """

    kind: SymptomKind
    step: int
    pass_name: str | None
    message: str
    inner_pass: str | None = None
    function: str | None = None
    problem: str | None = None
    signal: str | None = None
    node: str | None = None
    binding: str | None = None
    before_ms: float | None = None
    after_ms: float | None = None

    def to_json(self) -> JsonObject:
        members = dataclasses.asdict(self) | {"kind": self.kind.value}
        members["pass"] = members.pop("pass_name")
        return members

    @classmethod
    def from_json(cls, value: JsonObject) -> Finding:
        """Reads what a worker sent, which is treated as hostile. Raises KeyError, TypeError, ValueError."""
        texts = ("inner_pass", "function", "problem", "signal", "node", "binding")
        members: JsonObject = {name: _text(value[name], MAX_NAME) for name in texts}
        for name in ("before_ms", "after_ms"):
            members[name] = None if value[name] is None else float(value[name])
        message, pass_name = _text(value["message"], MAX_MESSAGE) or "", _text(value["pass"], MAX_NAME)
        return cls(SymptomKind(value["kind"]), int(value["step"]), pass_name, message, **members)

    def is_like(self, other: Finding) -> bool:
        """Whether both are the same fault: at the same pass, in the same way, by the same words but for names."""
        same = ("kind", "step", "pass_name", "problem", "signal")
        if any(getattr(self, name) != getattr(other, name) for name in same):
            return False
        if self.kind in (SymptomKind.WRONG, SymptomKind.SLOW):
            return True
        if self.inner_pass is not None and other.inner_pass is not None and self.inner_pass != other.inner_pass:
            return False
        return gist(self.message) == gist(other.message)


@dataclass(frozen=True)
class Fragment:
    """A part of a program: the positions of the nodes that stay (all where None) and of those that are returned.

    `sizes` are pairs of a dimension and what it becomes.
    """

    nodes: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None
    sizes: tuple[tuple[int, int], ...] = field(default=())

    def to_json(self) -> JsonObject:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: JsonObject) -> Fragment:
        nodes, outputs = (None if value[name] is None else tuple(value[name]) for name in ("nodes", "outputs"))
        return cls(nodes, outputs, tuple((old, new) for old, new in value["sizes"]))


def gist(message: str) -> str:
    """What a message says without names, numbers and code, which are others in a smaller model."""
    text = re.sub(r"0x[0-9a-f]+|\d+|'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|\([^)]*\)", "", message)
    return " ".join(re.sub(r"\b(lv|gv|fused_)\w*", "", text).split())[:120]


def _text(value: Any, limit: int) -> str | None:
    return None if value is None else str(value)[:limit]
