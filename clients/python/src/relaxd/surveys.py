"""What the server finds out about a model or a Compilation, as frozen values, and the calls for it, as Flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from relaxd.calls import InputSpecs, ModelSource, model_parts, request_document
from relaxd.grids import Grid, Row, Shown
from relaxd.nouns import JsonObject, Signature
from relaxd.sending import Flow, Request, read_answer, send

# A profile runs the artifact up to a thousand times before it answers.
_PROFILE_WAIT_S = 300.0


@dataclass(frozen=True)
class UnsupportedOperator:
    """An operator that cannot be compiled: how often it is used, where first in the user's model, and what to do."""

    operator: str
    count: int
    module_path: str | None
    source_line: str | None
    hint: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> UnsupportedOperator:
        return cls(
            value["operator"], int(value["count"]), value["module_path"], value["source_line"], str(value["hint"])
        )


@dataclass(frozen=True)
class Inspection:
    """What a model is, before it is compiled. `signature` is None when its operators cannot even be loaded."""

    format: str
    signature: Signature | None
    parameters: int | None
    parameter_bytes: int | None
    operators: dict[str, int]
    unsupported: tuple[UnsupportedOperator, ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Inspection:
        signature, parameters = value["signature"], value["parameters"] or {}
        return cls(
            value["format"],
            None if signature is None else Signature.from_json(signature),
            parameters.get("count"),
            parameters.get("bytes"),
            {entry["name"]: int(entry["count"]) for entry in value["operators"]},
            tuple(UnsupportedOperator.from_json(entry) for entry in value["unsupported"]),
            dict(value),
        )


@dataclass(frozen=True)
class Operators:
    """ATen operators by full name: compiled as they are, and written by PyTorch with others first."""

    supported: tuple[str, ...]
    decomposed: tuple[str, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Operators:
        return cls(tuple(value["supported"]), tuple(value["decomposed"]))


@dataclass(frozen=True)
class Kernel:
    """One kernel of a Profile: times in µs, summed over its calls of one run. Rates are None where a size is a symbol.

    `of_peak` and `of_bandwidth` are shares of what the machine's core was measured to do; `sources` are lines of the
    user's model, or paths of its modules.
    """

    function: str
    calls: int
    share: float
    min_us: float
    median_us: float
    spread_us: float
    flops_per_s: float | None
    of_peak: float | None
    bytes_per_s: float | None
    of_bandwidth: float | None
    sources: tuple[str, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Kernel:
        places = (entry["source"] or entry["module"] for entry in value["sources"])
        return cls(
            value["function"],
            int(value["calls"]),
            float(value["share"]),
            float(value["min_us"]),
            float(value["median_us"]),
            float(value["spread_us"]),
            value["flops_per_s"],
            value["of_peak"],
            value["bytes_per_s"],
            value["of_bandwidth"],
            tuple(dict.fromkeys(place for place in places if place)),
        )


@dataclass(frozen=True)
class Profile(Shown):
    """Where the time of a compiled model goes. `total_us` is the median of whole runs, copies of tensors included."""

    compilation: str
    runs: int
    sizes: dict[str, int]
    total_us: float
    kernels: tuple[Kernel, ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Profile:
        kernels = tuple(Kernel.from_json(entry) for entry in value["kernels"])
        total = float(value["total"]["median_us"])
        return cls(value["id"], int(value["runs"]), dict(value["sizes"]), total, kernels, dict(value))

    def grid(self) -> Grid:
        """One row a kernel, the slowest first, beside what one core of the machine can do."""
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        caption = f"{self.total_us:.1f} µs a run, median of {self.runs}{'; ' if sizes else ''}{sizes}"
        rows = tuple(map(_row, sorted(self.kernels, key=lambda kernel: -kernel.share)))
        headings = ("kernel", "share", "µs", "GFLOP/s", "of peak", "GB/s", "of memory", "source")
        return Grid(headings, rows, frozenset(headings[1:-1]), caption=caption)


def _row(kernel: Kernel) -> Row:
    flops, moved = (None if rate is None else rate / 1e9 for rate in (kernel.flops_per_s, kernel.bytes_per_s))
    rates = ((flops, ".1f"), (kernel.of_peak, ".0%"), (moved, ".1f"), (kernel.of_bandwidth, ".0%"))
    cells = ("-" if value is None else f"{value:{form}}" for value, form in rates)
    # `net.py:12: x = ...`: the line's text is in the model's source.
    sources = dict.fromkeys(source.partition(": ")[0] for source in kernel.sources)
    return kernel.function, f"{kernel.share:.1%}", f"{kernel.median_us:.1f}", *cells, ", ".join(list(sources)[:3])


@dataclass(frozen=True)
class Origin:
    """A node of the model: its operator, the path of its module, the line of the user's source."""

    index: int
    node: str
    operator: str
    module: str | None
    source: str | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Origin:
        return cls(int(value["index"]), value["node"], value["operator"], value["module"], value["source"])


@dataclass(frozen=True)
class Place:
    """A binding, or with `binding` None a function, in the IR after one step. `origins` are indexes of Origins."""

    stage: str
    step: int
    function: str
    binding: str | None
    origins: tuple[int, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Place:
        return cls(value["stage"], int(value["step"]), value["function"], value["binding"], tuple(value["origins"]))


@dataclass(frozen=True)
class Provenance:
    """Nodes of the model, and the places at every stage that come from them. `next_offset` is that of the next page."""

    origins: tuple[Origin, ...]
    places: tuple[Place, ...]
    total_places: int
    next_offset: int | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Provenance:
        origins = tuple(Origin.from_json(entry) for entry in value["origins"])
        places = tuple(Place.from_json(entry) for entry in value["places"])
        return cls(origins, places, int(value["total_places"]), value["next_offset"], dict(value))


def inspect(source: ModelSource, inputs: InputSpecs | None) -> Flow[Inspection]:
    """What the model is."""
    with model_parts(source, request_document(None, inputs), None) as parts:
        answer = yield from send(Request("POST", "/inspect", parts=parts))
    return read_answer(answer, Inspection.from_json)


def operators() -> Flow[Operators]:
    """What can be compiled."""
    answer = yield from send(Request("GET", "/operators"))
    return read_answer(answer, Operators.from_json)


def profile(compilation: str, runs: int | None, sizes: Mapping[str, int] | None) -> Flow[Profile]:
    """The time of each kernel."""
    query: dict[str, str | int] = {} if runs is None else {"runs": runs}
    if sizes:
        query["sizes"] = ",".join(f"{name}:{size}" for name, size in sizes.items())
    path = f"/compile/{quote(compilation, safe='')}/profile"
    answer = yield from send(Request("GET", path, query, wait_s=_PROFILE_WAIT_S))
    return read_answer(answer, Profile.from_json)


def provenance(compilation: str, **question: str | int | None) -> Flow[Provenance]:
    """What comes from where; the parameters of `question` that are None are left out."""
    query = {name: value for name, value in question.items() if value is not None}
    answer = yield from send(Request("GET", f"/compile/{quote(compilation, safe='')}/provenance", query))
    return read_answer(answer, Provenance.from_json)
