"""The nouns that cross process boundaries, as frozen values that read and write JSON. Standard library only."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.errors import JsonObject
from service.limits import Limits as Limits  # a noun like the others, in a file of its own

Dim = int | str


class State(enum.StrEnum):
    """Where a Compilation stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class Stage(enum.StrEnum):
    """The tag that ``GET /ir/{stage}`` takes, in the order in which a pipeline usually reaches them."""

    IMPORT = "import"
    SIMPLIFY = "simplify"
    FUSION = "fusion"
    LOWERING = "lowering"
    FUSE_TIR = "fuse_tir"
    SCHEDULE = "schedule"
    VM = "vm"
    TIR = "tir"
    LLVM = "llvm"
    ASM = "asm"


# What the build gives after the last pass; `asm` is read off the library when it is asked for first.
BUILD_STAGES = (Stage.VM, Stage.TIR, Stage.LLVM, Stage.ASM)


class ModelFormat(enum.StrEnum):
    """The serialized forms of a Model, recognised by content."""

    EXPORTED_PROGRAM = "exported_program"
    TORCHSCRIPT = "torchscript"
    FX = "fx"


class Verify(enum.StrEnum):
    """When the numbers are checked against PyTorch eager: the built artifact always, every step on request."""

    ARTIFACT = "artifact"
    EVERY_STEP = "every_step"


class SpecialValues(enum.StrEnum):
    """What becomes of an artifact that differs from PyTorch only on NaN, infinities and extremes."""

    FAIL = "fail"
    REPORT = "report"


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal values give equal bytes. Raises ValueError on NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape (a dimension is a number or a symbol) and dtype (numpy's name) of one input or output."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str

    def to_json(self) -> JsonObject:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_json(cls, value: JsonObject) -> TensorSpec:
        return cls(value["name"], tuple(value["shape"]), value["dtype"])


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives, in order; for each symbol of a shape the sizes that the model allows.

    An upper bound is None where there is none.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "symbols": {name: {"min": low, "max": high} for name, (low, high) in self.symbols.items()},
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Signature:
        return cls(
            tuple(TensorSpec.from_json(spec) for spec in value["inputs"]),
            tuple(TensorSpec.from_json(spec) for spec in value["outputs"]),
            {str(name): (bounds["min"], bounds["max"]) for name, bounds in value.get("symbols", {}).items()},
        )


@dataclass(frozen=True)
class PassSpec:
    """One position of a Recipe: the pass and all of its options, defaults filled in."""

    name: str
    options: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {"name": self.name, "options": self.options}


@dataclass(frozen=True)
class Target:
    """What the library is built for. `cpu` is ``native`` or an LLVM CPU name; `threads` 0 means all cores.

    The threads are those of one inference.
    """

    cpu: str = "native"
    threads: int = 1

    def to_json(self) -> JsonObject:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class PassContext:
    """What holds around all passes and the build: TVM's optimization level, passes that it skips, settings by key."""

    opt_level: int = 2
    disabled: tuple[str, ...] = ()
    config: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {"opt_level": self.opt_level, "disabled": list(self.disabled), "config": self.config}

    @classmethod
    def from_json(cls, value: JsonObject) -> PassContext:
        return cls(value["opt_level"], tuple(value["disabled"]), value["config"])


@dataclass(frozen=True)
class Recipe:
    """The validated pass list and target. Two recipes with the same passes are the same, whatever their name.

    With `until` it ends with the last pass of that stage, and nothing is built.
    """

    passes: tuple[PassSpec, ...]
    target: Target = Target()
    name: str | None = None
    context: PassContext = PassContext()
    until: Stage | None = None

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "passes": [spec.to_json() for spec in self.passes],
            "target": self.target.to_json(),
            "context": self.context.to_json(),
            "until": None if self.until is None else self.until.value,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Recipe:
        return cls(
            tuple(PassSpec(spec["name"], spec["options"]) for spec in value["passes"]),
            Target(**value["target"]),
            value["name"],
            PassContext.from_json(value["context"]) if "context" in value else PassContext(),
            Stage(value["until"]) if value.get("until") else None,
        )


# The layers of the sandbox without which a server does not start, unless its operator says so.
REQUIRED_LAYERS = ("limits", "no_new_privs", "landlock", "seccomp")


@dataclass(frozen=True)
class Confinement:
    """The limits of one worker: bytes of private memory beyond what it starts with, CPU seconds, bytes of a file.

    `work_dir` is the folder that it works in, and `writable` names the files there that it may write, which exist.
    `uid` is the user that it becomes, where it is root before.
    """

    memory_bytes: int
    cpu_s: int
    file_bytes: int
    work_dir: str = "/"
    writable: tuple[str, ...] = ()
    uid: int | None = None

    def to_json(self) -> JsonObject:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: JsonObject) -> Confinement:
        return cls(**{**value, "writable": tuple(value["writable"])})


@dataclass(frozen=True)
class Translator:
    """How a Model becomes Relax: by relaxd's own converters, or by the generic translator of the lecture.

    `ops` is for ``course``: operators of Relax, or calls of TensorIR functions at once.
    """

    name: str = "relaxd"
    ops: str = "relax"

    def to_json(self) -> JsonObject:
        return {"translator": self.name, "ops": self.ops}

    @classmethod
    def from_json(cls, value: JsonObject) -> Translator:
        return cls(value["translator"], value["ops"])


@dataclass(frozen=True)
class CompileJob:
    """What a compile worker is told to do. Paths are relative to its work folder, which is `work_dir`, its current one.

    `inputs` are the inputs that the request declared, `inputs_path` an ``.npz`` of example inputs; both may be None.
    The worker writes the library to ``library_path``. With `keep` it waits for another job afterwards, and that may say
    which step of this one it comes `after`.
    """

    model_path: str
    format: ModelFormat
    recipe: Recipe
    verify: Verify
    inputs: tuple[TensorSpec, ...] | None
    inputs_path: str | None
    work_dir: str
    limits: Limits
    special_values: SpecialValues = SpecialValues.FAIL
    translator: Translator = Translator()
    library: str = "model.so"
    keep: bool = False
    after: int | None = None

    @property
    def library_path(self) -> str:
        return f"{self.work_dir}/{self.library}"

    def to_json(self) -> JsonObject:
        return {
            "model_path": self.model_path,
            "format": self.format.value,
            "recipe": self.recipe.to_json(),
            "verify": self.verify.value,
            "inputs": None if self.inputs is None else [spec.to_json() for spec in self.inputs],
            "inputs_path": self.inputs_path,
            "work_dir": self.work_dir,
            "limits": self.limits.to_json(),
            "special_values": self.special_values.value,
            "import": self.translator.to_json(),
            "library": self.library,
            "keep": self.keep,
            "after": self.after,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> CompileJob:
        inputs = value["inputs"]
        return cls(
            value["model_path"],
            ModelFormat(value["format"]),
            Recipe.from_json(value["recipe"]),
            Verify(value["verify"]),
            None if inputs is None else tuple(TensorSpec.from_json(spec) for spec in inputs),
            value["inputs_path"],
            value["work_dir"],
            Limits(**value["limits"]),
            SpecialValues(value["special_values"]),
            Translator.from_json(value["import"]),
            value["library"],
            value["keep"],
            value["after"],
        )


@dataclass(frozen=True)
class Figures:
    """What a step's module costs and how it differs from the one before, in counts and bytes.

    `peak_rss_bytes` is the worker's peak until then. `flops` and `bytes_moved` are sums over the calls of TensorIR
    functions; None where nothing is lowered or a size is a symbol. `op_changes` are differences of operator counts.
    """

    peak_rss_bytes: int = 0
    constants: int = 0
    constant_bytes: int = 0
    flops: int | None = None
    bytes_moved: int | None = None
    op_changes: dict[str, int] = field(default_factory=dict)
    functions_added: int = 0
    functions_removed: int = 0
    functions_changed: int = 0

    def to_json(self) -> JsonObject:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: JsonObject) -> Figures:
        def number(name: str) -> int | None:
            return None if value.get(name) is None else int(value[name])

        changes = {str(name): int(count) for name, count in value.get("op_changes", {}).items()}
        counts = {
            entry.name: number(entry.name) or 0
            for entry in dataclasses.fields(cls)
            if entry.name not in ("op_changes", "flops", "bytes_moved")
        }
        return cls(**counts, op_changes=changes, flops=number("flops"), bytes_moved=number("bytes_moved"))


@dataclass(frozen=True)
class Step:
    """What is known of the IR after one position of a Recipe, without its text. Position 0 is the import.

    `ops` counts Relax operators and calls by name over all functions; `error` is the largest absolute difference
    from PyTorch eager on the example inputs where the step was checked; `notes` are remarks of the pass and
    `details` its facts by topic (``kernels``, ``patterns``).
    """

    index: int
    stage: Stage
    pass_name: str | None
    options: JsonObject
    changed: bool
    wall_ms: float
    cpu_ms: float
    ops: dict[str, int] = field(default_factory=dict)
    functions: int = 0
    error: float | None = None
    notes: tuple[str, ...] = ()
    details: JsonObject = field(default_factory=dict)
    figures: Figures = Figures()

    def to_json(self) -> JsonObject:
        return {
            "index": self.index,
            "stage": self.stage.value,
            "pass": self.pass_name,
            "options": self.options,
            "changed": self.changed,
            "wall_ms": self.wall_ms,
            "cpu_ms": self.cpu_ms,
            "ops": self.ops,
            "functions": self.functions,
            "error": self.error,
            "notes": list(self.notes),
            "details": self.details,
            "figures": self.figures.to_json(),
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Step:
        return cls(
            int(value["index"]),
            Stage(value["stage"]),
            value["pass"],
            dict(value["options"]),
            bool(value["changed"]),
            float(value["wall_ms"]),
            float(value["cpu_ms"]),
            {str(name): int(count) for name, count in value["ops"].items()},
            int(value["functions"]),
            None if value["error"] is None else float(value["error"]),
            tuple(str(note) for note in value["notes"]),
            dict(value.get("details", {})),
            Figures.from_json(value.get("figures", {})),
        )
