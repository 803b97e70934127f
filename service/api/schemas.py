"""What the HTTP API takes and gives, for validation and OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

Number = Annotated[int, Field(ge=0, strict=True)]
Symbol = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
DTYPES = Literal[
    "float16", "float32", "float64", "bfloat16",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
]  # fmt: skip


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class InputRequest(_Request):
    """A declared input. For a .pt2 it must agree with what the file says."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    shape: list[Number | Symbol] = Field(max_length=32)
    dtype: DTYPES = "float32"


class TargetRequest(_Request):
    """What the library is built for: `native` or an LLVM CPU name; 0 threads means all cores."""

    cpu: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)] = "native"
    threads: Annotated[int, Field(ge=0, le=1024)] = 1


class ImportRequest(_Request):
    """How the model becomes Relax: `relaxd`, or the lecture's generic translator `course`.

    `ops` is for `course`: operators of Relax, or calls of TensorIR functions at once.
    """

    translator: Literal["relaxd", "course"] = "relaxd"
    ops: Literal["relax", "tensorir"] = "relax"


class BaseRequest(_Request):
    """A step of an earlier Compilation. Its passes up to there come before those of this request."""

    id: str
    step: int = Field(ge=0)


class TuneRequest(_Request):
    """For how many seconds to measure other parameters for the model's kernels; at most `tune_s` in `/healthz`."""

    budget_s: float = Field(gt=0, allow_inf_nan=False)


class CompileRequest(_Request):
    """The `request` part of POST /compile. Everything has a default."""

    format: Literal["auto", "exported_program", "torchscript", "fx"] = "auto"
    inputs: list[InputRequest] | None = Field(default=None, max_length=4096)
    passes: Any = Field(
        default=None,
        description="A preset's name, or a list of passes and presets. Default: the default recipe.",
    )
    pass_context: Any = Field(default=None, description="What TVM's passes and its build run in, from an allowlist.")
    importing: ImportRequest = Field(default=ImportRequest(), alias="import")
    target: TargetRequest = TargetRequest()
    until: Literal["import", "simplify", "fusion", "lowering", "fuse_tir", "schedule"] | None = Field(
        default=None, description="Stop after the last pass of this stage: nothing is built or verified."
    )
    base: BaseRequest | None = Field(
        default=None, alias="from", description="Go on after a step of an earlier Compilation, whose model it is."
    )
    keep: bool = Field(
        default=False,
        description="Keep the worker for two minutes, so that a next Compilation that begins alike runs what is new.",
    )
    verify: Literal["artifact", "every_step"] = "artifact"
    tune: TuneRequest | None = Field(
        default=None, description="Tune the kernels of the pass `schedule` on this machine, beyond the time to compile."
    )
    special_values: Literal["fail", "report"] = Field(
        default="fail", description="What differs only on NaN, infinities and extremes fails, or is told."
    )


class TensorSpecView(BaseModel):
    name: str
    shape: list[int | str]
    dtype: str


class SymbolView(BaseModel):
    """The sizes that a symbolic dimension may have; no upper bound where `max` is null."""

    min: int
    max: int | None


class SignatureView(BaseModel):
    inputs: list[TensorSpecView]
    outputs: list[TensorSpecView]
    symbols: dict[str, SymbolView]


class ModelView(BaseModel):
    sha256: str
    format: str
    bytes: int
    filename: str


class PassSpecView(BaseModel):
    name: str
    options: dict[str, JsonValue]


class TargetView(BaseModel):
    cpu: str
    threads: int


class PassContextView(BaseModel):
    """What TVM's passes and its build ran in."""

    opt_level: int
    disabled: list[str]
    config: dict[str, JsonValue]


class RecipeView(BaseModel):
    name: str | None
    passes: list[PassSpecView]
    target: TargetView
    context: PassContextView
    until: str | None


class FiguresView(BaseModel):
    """Counts and bytes of one step. `flops` and `bytes_moved` sum over calls of TensorIR functions of known shapes."""

    peak_rss_bytes: int
    constants: int
    constant_bytes: int
    flops: int | None
    bytes_moved: int | None
    op_changes: dict[str, int]
    functions_added: int
    functions_removed: int
    functions_changed: int


class StepView(BaseModel):
    """One step. `ops` counts operators by name; `error` is the largest absolute difference from PyTorch eager."""

    index: int
    stage: str
    pass_name: str | None = Field(alias="pass")
    options: dict[str, JsonValue]
    changed: bool
    wall_ms: float
    cpu_ms: float
    ops: dict[str, int]
    functions: int
    error: float | None
    notes: list[str]
    details: dict[str, JsonValue]
    figures: FiguresView
    href: str


class ArtifactView(BaseModel):
    library_sha256: str
    manifest: dict[str, JsonValue]


class ProblemView(BaseModel):
    """RFC 9457, with extension members that depend on the type: see docs/errors.md."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str


class TranslatorView(BaseModel):
    """What made Relax of the model."""

    translator: str
    ops: str


class TuningView(BaseModel):
    """How far tuning has got: kernels that have something to choose, those that are done, candidates measured.

    `best_gain` is the largest gain of one kernel over the rule's parameters, 1 where there is none yet.
    """

    budget_s: float
    seconds_left: float
    kernels: int
    kernels_done: int
    candidates: int
    best_gain: float


class CompilationView(BaseModel):
    """A Compilation as it stands."""

    id: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    created_at: str
    started_at: str | None
    ended_at: str | None
    model: ModelView
    recipe: RecipeView
    verify: str
    special_values: str
    importing: TranslatorView = Field(alias="import")
    inputs: list[TensorSpecView] | None
    inputs_sha256: str | None = Field(description="Of the example inputs that came with the request.")
    toolchain: dict[str, JsonValue]
    signature: SignatureView | None
    steps: list[StepView]
    results: list[StepView] = Field(description="What the build made of the last step: `vm`, `tir`, `llvm`, `asm`.")
    timings: list[dict[str, JsonValue]]
    verification: dict[str, JsonValue] | None
    artifact: ArtifactView | None
    problem: ProblemView | None
    reused_steps: int = Field(description="How many of the steps were taken over from an earlier Compilation.")
    tuning: TuningView | None = Field(description="Where the request had a budget for it.")


class ParametersView(BaseModel):
    """Weights and constants: number of values, and their bytes."""

    count: int
    bytes: int


class OperatorCountView(BaseModel):
    name: str
    count: int


class UnsupportedView(BaseModel):
    """An operator that cannot be compiled: its uses, the place of the first in the user's model, and what to do."""

    operator: str
    count: int
    module_path: str | None
    source_line: str | None
    hint: str


class InspectionView(BaseModel):
    """What a model is. `signature` and `parameters` are null when its operators cannot even be loaded."""

    format: str
    signature: SignatureView | None
    parameters: ParametersView | None
    operators: list[OperatorCountView]
    unsupported: list[UnsupportedView]


class OperatorsView(BaseModel):
    """Operators by full name: compiled as they are, and written by PyTorch with others first."""

    supported: list[str]
    decomposed: list[str]


class CompilationsView(BaseModel):
    compilations: list[CompilationView]


class OipTensor(BaseModel):
    """A tensor in the Open Inference Protocol's form; `shape` and `datatype` may be left out."""

    name: str
    shape: list[int] | None = None
    datatype: str | None = None
    data: list[JsonValue]


class InferRequest(BaseModel):
    """`inputs` by name as nested lists, or as a list of tensors in the Open Inference Protocol's form."""

    model: str
    inputs: dict[str, JsonValue] | list[OipTensor]
    id: str | None = None


class InferResponse(BaseModel):
    """Outputs in the form in which the inputs came. Floats that JSON lacks are "NaN", "Infinity", "-Infinity"."""

    model: str
    model_name: str | None = Field(default=None, description="The same as `model`, in the protocol's form only.")
    outputs: dict[str, JsonValue] | list[OipTensor]
    id: str | None = None


class PassExampleView(BaseModel):
    """TVMScript before and after the pass with these options."""

    options: dict[str, JsonValue]
    before: str
    after: str


class PassView(BaseModel):
    """One pass of the Catalogue; `options` is the JSON Schema of its options."""

    name: str
    stage: str
    summary: str
    doc: str
    needs: list[str]
    gives: list[str]
    takes: list[str]
    example: PassExampleView
    options: dict[str, JsonValue]


class PassesView(BaseModel):
    passes: list[PassView]


class RecipePresetView(BaseModel):
    name: str
    doc: str
    passes: list[PassSpecView]
    default: bool


class RecipesView(BaseModel):
    recipes: list[RecipePresetView]


class HealthView(BaseModel):
    """`status` is `ok` when workers can be started, `starting` before."""

    status: Literal["ok", "starting", "degraded"]
    version: str
    zygotes: dict[str, str]
    compilations: dict[str, int]
    sessions: int
    sandbox: dict[str, dict[str, str]] = Field(description="By role of worker: each layer, `on` or why not.")
    limits: dict[str, float]
