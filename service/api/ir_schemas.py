"""The shapes of answers about the IR: Snapshots, differences, provenance, profiles."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, JsonValue

from service.api.schemas import StepView, TensorSpecView


class BindingView(BaseModel):
    """A node of a function's graph. `op` is an operator, `parameter`, or `return`; `callee` the function it calls."""

    name: str
    op: str
    type: str
    inputs: list[str]
    callee: str | None = None
    index: int | None = None
    origins: list[int] = Field(default=[], description="Nodes of the model: positions in the origins of step 0.")


class BlockView(BaseModel):
    """A block of a kernel with its loops: lines of the function's text, counted from 1, and nodes of the model."""

    name: str
    first_line: int
    last_line: int
    origins: list[int]


class FunctionView(BaseModel):
    """One function. `flops` and `bytes_moved` are null but for TensorIR of known shapes."""

    name: str
    kind: Literal["relax", "tensorir", "vm", "llvm", "asm"]
    primitive: bool
    ops: dict[str, int]
    calls: list[str]
    bindings: list[BindingView]
    constants: int
    constant_bytes: int
    flops: int | None
    bytes_moved: int | None
    origins: list[int] = []
    blocks: list[BlockView] = Field(default=[], description="Of a kernel that was fused, where they are known.")
    made_of: list[int] | None = Field(
        default=None,
        description="Of `tir`, `llvm` and `asm`: for each line of `text`, the line of the kernel of the same name "
        "after the last step that it was made of; 0 where that is not known.",
    )
    text: str


class FunctionChangesView(BaseModel):
    """Names of the functions in which a step's module differs from the one before."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class InnerPassView(BaseModel):
    """A pass of TVM inside of a step; `text` is the IR after it, null where nothing changed or no room was left."""

    name: str
    level: int
    changed: bool
    wall_ms: float
    text: str | None


class ExampleView(BaseModel):
    """The example inputs and PyTorch eager's outputs, by name, as POST /infer has them; not where they are large."""

    inputs: dict[str, JsonValue]
    outputs: dict[str, JsonValue]


class SnapshotView(BaseModel):
    """The IR after one step."""

    id: str
    stage: str
    step: StepView
    text: str
    functions: list[FunctionView]
    changes: FunctionChangesView | None
    inner: list[InnerPassView] | None = Field(default=None, description="With `expand`.")
    origins: list[dict[str, JsonValue]] | None = Field(default=None, description="Of step 0: the model's nodes.")
    example: ExampleView | None = Field(default=None, description="Of step 0, where every step is verified.")


class OriginView(BaseModel):
    """A node of the model: its operator, the path of its module, the line of the user's source."""

    index: int
    node: str
    operator: str
    module: str | None
    source: str | None


class PlaceView(BaseModel):
    """A binding, or with `binding` null a function, in the IR after one step."""

    stage: str
    step: int
    function: str
    binding: str | None
    origins: list[int]


class CoverageView(BaseModel):
    """Of the kernels after the last step: how many lead to a node of the model, and to a source line."""

    kernels: int
    with_origin: int
    with_source: int


class ProvenanceView(BaseModel):
    """Nodes of the model, and all places that come from them; `places` is one page."""

    id: str
    origins: list[OriginView]
    places: list[PlaceView]
    total_places: int
    next_offset: int | None
    coverage: CoverageView


class TimesView(BaseModel):
    """Times in µs; the spread is from the 10th to the 90th percentile."""

    min_us: float
    median_us: float
    spread_us: float


class SourceView(BaseModel):
    module: str | None
    source: str | None


class SourceShareView(SourceView):
    share: float


class KernelView(TimesView):
    """One kernel: its times are sums over its calls of one run; rates are null where a size is a symbol."""

    function: str
    calls: int
    share: float
    flops: int | None
    flops_per_s: int | None
    of_peak: float | None
    bytes_moved: int | None
    bytes_per_s: int | None
    of_bandwidth: float | None
    sources: list[SourceView]


class MachineView(BaseModel):
    """What one core did at most when it was measured: float32 operations, and bytes read from memory, a second."""

    flops_per_s: float
    bytes_per_s: float


class ProfileView(BaseModel):
    """Where the time of an Artifact goes. `total` is of whole runs, copies of inputs and outputs included."""

    id: str
    sizes: dict[str, int]
    inputs: list[TensorSpecView]
    runs: int
    total: TimesView
    kernels: list[KernelView]
    virtual_machine_us: float
    machine: MachineView
    sources: list[SourceShareView]


class StepReference(BaseModel):
    id: str
    stage: str
    step: int


class RenamedView(BaseModel):
    old: str = Field(alias="from")
    new: str = Field(alias="to")


class FunctionsDifferenceView(BaseModel):
    same: list[str]
    changed: list[str]
    added: list[str]
    removed: list[str]
    renamed: list[RenamedView]


class ChangeView(BaseModel):
    """A line that only one side has, or a binding whose operands differ."""

    function: str
    kind: Literal["added", "removed", "changed"]
    before: str | None
    after: str | None


class DifferenceView(BaseModel):
    """What differs between the IR of two steps, matched by structure; `changes` is one page of them."""

    base: StepReference = Field(alias="from")
    to: StepReference
    same_model: bool
    identical: bool
    functions: FunctionsDifferenceView
    changes: list[ChangeView]
    total_changes: int
    next_offset: int | None
