"""A profile as it is asked for and as it is told: sizes for symbols, kernels beside the machine, source lines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from service.dimensions import evaluated, symbols_of
from service.errors import InvalidField, JsonObject
from service.nouns import Dim, Signature, TensorSpec


def parse_sizes(text: str | None, signature: Signature) -> dict[str, int]:
    """``batch:8,length:128`` as a size for each symbol; the smallest that the model takes where none is given.

    Raises InvalidField.
    """
    given: dict[str, int] = {}
    for part in (text or "").split(",") if text else ():
        name, _, value = part.partition(":")
        if name not in signature.symbols or not value.isdecimal():
            raise InvalidField(
                f"`sizes` must be like `batch:8,length:128`, of the symbols {', '.join(signature.symbols) or 'none'}; "
                f"{part[:100]!r} is not.",
                field="sizes",
            )
        low, high = signature.symbols[name]
        if int(value) < low or (high is not None and int(value) > high):
            raise InvalidField(
                f"`sizes` has {name} = {value}; the model takes {low} to {'any' if high is None else high}.",
                field="sizes",
            )
        given[name] = int(value)
    return {name: given.get(name, max(low, 1)) for name, (low, _) in signature.symbols.items()}


def input_specs(signature: Signature, sizes: Mapping[str, int]) -> list[TensorSpec]:
    """The inputs with sizes for symbols. Raises InvalidField where a dimension cannot be computed."""
    return [
        TensorSpec(spec.name, tuple(_size(dim, sizes) for dim in spec.shape), spec.dtype) for spec in signature.inputs
    ]


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    size = evaluated(dim, dict.fromkeys(symbols_of(dim), 1) | dict(sizes))
    if size is None:
        raise InvalidField(f"The dimension {dim!r} of the model has no size here.", field="sizes")
    return size


def report(
    measured: JsonObject, machine: JsonObject, tir: JsonObject, last: JsonObject, origins: list[JsonObject]
) -> JsonObject:
    """Kernels by time with their rates, what is left for the virtual machine, and time by source line.

    `tir` is the Snapshot of the built kernels, `last` that of the last step, which knows their origins. A kernel of
    several source lines gives each the same part of its time.
    """
    known = {entry["name"]: entry for entry in last["functions"]} | {
        entry["name"]: {**entry, "origins": None} for entry in tir["functions"] if entry["flops"] is not None
    }
    of_origins = {entry["name"]: entry.get("origins", []) for entry in last["functions"]}
    names = {entry["name"] for entry in tir["functions"]}
    kernels = [each for each in measured["functions"] if each["function"] in names]
    others = [each for each in measured["functions"] if each["function"] not in names]
    total = sum(each["median_us"] for each in measured["functions"])
    rows = []
    lines: dict[tuple[str | None, str | None], float] = defaultdict(float)
    for each in sorted(kernels, key=lambda each: -float(each["median_us"])):
        entry = known.get(each["function"], {})
        share = each["median_us"] / total if total else 0.0
        found = [origins[position] for position in of_origins.get(each["function"], ())]
        places = sorted({(origin["module"], origin["source"]) for origin in found}, key=str) or [(None, None)]
        for place in places:
            lines[place] += share / len(places)
        rows.append({**each, "share": round(share, 4), **_rates(each, entry, machine), "sources": [
            {"module": module, "source": source} for module, source in places
        ]})  # fmt: skip
    return {
        "runs": measured["runs"],
        "total": measured["total"],
        "kernels": rows,
        "virtual_machine_us": round(sum(each["median_us"] for each in others), 3),
        "machine": machine,
        "sources": [
            {"module": module, "source": source, "share": round(share, 4)}
            for (module, source), share in sorted(lines.items(), key=lambda item: -item[1])
        ],
    }


def _rates(row: JsonObject, entry: JsonObject, machine: JsonObject) -> JsonObject:
    """Operations and bytes a second of one kernel, and as parts of what the machine can do."""
    seconds = row["median_us"] / 1e6
    rates: JsonObject = {}
    for count, rate, peak, part in (
        ("flops", "flops_per_s", "flops_per_s", "of_peak"),
        ("bytes_moved", "bytes_per_s", "bytes_per_s", "of_bandwidth"),
    ):
        each_run = entry.get(count)
        known = each_run is not None and seconds > 0
        value = each_run * row["calls"] / seconds if known else None
        rates |= {
            count: each_run,
            rate: None if value is None else round(value),
            part: None if value is None or not math.isfinite(machine[peak]) else round(value / machine[peak], 4),
        }
    return rates
