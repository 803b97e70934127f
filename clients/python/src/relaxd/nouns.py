"""What the server answers with, as frozen values. Members that a newer server adds are ignored, and kept in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from relaxd.grids import Grid, Shown

JsonObject = dict[str, Any]


def _number(value: Any) -> float | None:
    """A JSON number; the strings NaN, Infinity and -Infinity stand for what JSON has no numbers for."""
    return None if value is None else float(value)


def _short(value: Any) -> str:
    return "-" if value is None else f"{float(value):.1e}"


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape (a dimension is a number or a symbol such as ``batch``) and numpy dtype of an input or output."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TensorSpec:
        return cls(value["name"], tuple(value["shape"]), value["dtype"])

    def to_json(self) -> JsonObject:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Signature:
        return cls(
            tuple(TensorSpec.from_json(spec) for spec in value["inputs"]),
            tuple(TensorSpec.from_json(spec) for spec in value["outputs"]),
        )


@dataclass(frozen=True)
class Model:
    """The uploaded file."""

    sha256: str
    format: str
    size_bytes: int
    filename: str | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Model:
        return cls(value["sha256"], value["format"], int(value["bytes"]), value.get("filename"))


@dataclass(frozen=True)
class PassSpec:
    """A pass and its options, at one position of a Recipe."""

    name: str
    options: JsonObject

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PassSpec:
        return cls(value["name"], dict(value.get("options") or {}))


@dataclass(frozen=True)
class Recipe:
    """The passes of a Compilation and its target. `name` is the preset's, None for a list of passes."""

    name: str | None
    passes: tuple[PassSpec, ...]
    target: JsonObject

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Recipe:
        passes = tuple(PassSpec.from_json(spec) for spec in value["passes"])
        return cls(value.get("name"), passes, dict(value.get("target") or {}))


@dataclass(frozen=True)
class Figures:
    """Counts and bytes of one Step.

    `peak_rss_bytes` is of the worker; `flops` and `bytes_moved` sum over calls of TensorIR functions, None where a
    size is a symbol; `op_changes` has by how much the count of each operator changed.
    """

    peak_rss_bytes: int
    constants: int
    constant_bytes: int
    flops: int | None
    bytes_moved: int | None
    op_changes: dict[str, int]
    functions_added: int
    functions_removed: int
    functions_changed: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Figures:
        return cls(**{entry.name: value[entry.name] for entry in fields(cls)})


@dataclass(frozen=True)
class Step:
    """The IR after one position of the Recipe, without its text. Step 0 is the import, where `pass_name` is None.

    `ops` counts operators and calls by name; `error` is the largest absolute difference from PyTorch eager, None
    where the step was not checked. `details` has what the pass tells by topic, as ``patterns`` of fuse_pattern.
    `figures` is None only where a server does not send them.
    """

    index: int
    stage: str
    pass_name: str | None
    options: JsonObject
    changed: bool
    wall_ms: float
    cpu_ms: float
    ops: dict[str, int]
    functions: int
    error: float | None
    notes: tuple[str, ...]
    details: JsonObject = field(default_factory=dict)
    figures: Figures | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Step:
        return cls(
            int(value["index"]),
            value["stage"],
            value["pass"],
            dict(value.get("options") or {}),
            bool(value["changed"]),
            float(value["wall_ms"]),
            float(value["cpu_ms"]),
            dict(value["ops"]),
            int(value["functions"]),
            _number(value["error"]),
            tuple(value["notes"]),
            dict(value.get("details") or {}),
            Figures.from_json(value["figures"]) if value.get("figures") else None,
        )


@dataclass(frozen=True)
class Timing:
    """How long one phase of the Compilation took."""

    phase: str
    wall_ms: float
    cpu_ms: float

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Timing:
        return cls(value["phase"], float(value["wall_ms"]), float(value["cpu_ms"]))


@dataclass(frozen=True)
class OutputCheck:
    """How far one output of the artifact is from PyTorch eager's. `raw` has the figures that have no field here."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    max_abs_error: float | None
    max_rel_error: float | None
    raw: JsonObject = field(repr=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OutputCheck:
        return cls(
            value["name"],
            value["dtype"],
            tuple(value["shape"]),
            _number(value.get("max_abs_error")),
            _number(value.get("max_rel_error")),
            dict(value),
        )


@dataclass(frozen=True)
class Verification(Shown):
    """Whether the artifact's numbers are PyTorch's: the names of the cases, and the worst of them by output.

    Where every step was checked, `first_wrong` is the index of the first whose numbers are beyond tolerance, and
    `first_jump` of the first whose error is ten times the one before; None for none. `raw` has the tolerances.
    """

    passed: bool
    cases: tuple[str, ...]
    outputs: tuple[OutputCheck, ...]
    first_wrong: int | None = None
    first_jump: int | None = None
    raw: JsonObject = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Verification:
        outputs = tuple(OutputCheck.from_json(entry) for entry in value["outputs"])
        steps = value.get("steps") or {}
        firsts = (steps.get("first_wrong"), steps.get("first_jump"))
        return cls(bool(value["passed"]), tuple(value["cases"]), outputs, *firsts, dict(value))

    @property
    def verdict(self) -> str:
        """One line: whether the numbers are PyTorch's, and the largest error."""
        worst = max((check.max_abs_error or 0.0 for check in self.outputs), default=0.0)
        return f"the numbers {'are' if self.passed else 'differ from'} PyTorch's: largest error {worst:.1e}"

    def grid(self) -> Grid:
        """One row an output: its worst case, beside what is allowed."""
        rows = tuple(
            (check.name, str(check.raw.get("case", "-")), *map(_short, (check.max_abs_error, check.raw.get("atol"))))
            for check in self.outputs
        )
        headings = ("output", "case", "max error", "allowed")
        return Grid(headings, rows, frozenset({"max error", "allowed"}), caption=self.verdict)


@dataclass(frozen=True)
class Function:
    """One function of a Snapshot: its text, operator counts, and the names of what it calls."""

    name: str
    kind: str
    primitive: bool
    ops: dict[str, int]
    calls: tuple[str, ...]
    text: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Function:
        return cls(
            value["name"],
            value["kind"],
            bool(value["primitive"]),
            dict(value["ops"]),
            tuple(value["calls"]),
            value["text"],
        )


@dataclass(frozen=True)
class Snapshot:
    """The IR after one Step, in full and by function. `compilation` is the id of its Compilation."""

    compilation: str
    stage: str
    step: Step
    text: str
    functions: tuple[Function, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Snapshot:
        functions = tuple(Function.from_json(entry) for entry in value["functions"])
        return cls(value["id"], value["stage"], Step.from_json(value["step"]), value["text"], functions)


@dataclass(frozen=True)
class PassInfo:
    """A pass as the Catalogue describes it. `options` is JSON Schema; `raw` is the whole entry."""

    name: str
    stage: str
    summary: str
    doc: str
    options: JsonObject
    raw: JsonObject = field(repr=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PassInfo:
        return cls(value["name"], value["stage"], value["summary"], value["doc"], dict(value["options"]), dict(value))


@dataclass(frozen=True)
class RecipeInfo:
    """A preset: a name that `Client.compile` takes as `passes`."""

    name: str
    doc: str
    passes: tuple[PassSpec, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RecipeInfo:
        return cls(value["name"], value["doc"], tuple(PassSpec.from_json(spec) for spec in value["passes"]))
