"""The example inputs of a model and PyTorch eager's answer to them, for people who want to see both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from service.compiler.verify import Case
from service.errors import JsonObject
from service.nouns import Signature, TensorSpec
from service.runtime.session import Array

# More than that nobody reads, and all of it would be in the JSON of the import.
MOST_VALUES = 4096


def example_json(case: Case, signature: Signature) -> JsonObject | None:
    """Inputs and outputs by name as nested lists, in the form of POST /infer; None where they are too large."""
    pairs = ((signature.inputs, case.inputs), (signature.outputs, case.expected))
    if any(len(specs) != len(arrays) or sum(each.size for each in arrays) > MOST_VALUES for specs, arrays in pairs):
        return None
    inputs, outputs = (_by_name(specs, arrays) for specs, arrays in pairs)
    return {"inputs": inputs, "outputs": outputs}


def _by_name(specs: tuple[TensorSpec, ...], arrays: list[Array]) -> JsonObject:
    return {spec.name: _plain(_numbers(array).tolist()) for spec, array in zip(specs, arrays, strict=True)}


def _numbers(array: Array) -> Array:
    """As JSON can have them: each float with the fewest digits that say it."""
    if array.dtype.kind in "biu":
        return array
    short = array.astype(np.float32) if array.dtype.itemsize < 8 else array
    return np.array([float(str(value)) for value in short.ravel()]).reshape(short.shape)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
