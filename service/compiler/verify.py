"""Whether a library computes what PyTorch eager computes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.compiler.importers import ImportedModel, Reference
from service.errors import ExecutionFailed, JsonObject, VerificationFailed
from service.nouns import TensorSpec
from service.runtime.session import Array, Session
from service.runtime.tvm_errors import readable_message

SEED = 20240229
_TINY = 1e-300


@dataclass(frozen=True)
class Tolerance:
    """Relative to each expected value, and absolute as a fraction of the largest expected magnitude."""

    rtol: float
    scale_atol: float
    floor: float


_EXACT = Tolerance(0.0, 0.0, 0.0)
_TOLERANCES = {
    "float16": Tolerance(1e-2, 2e-3, 1e-7),
    "bfloat16": Tolerance(3e-2, 1e-2, 1e-30),
    "float32": Tolerance(1e-3, 1e-4, 1e-30),
    "float64": Tolerance(1e-6, 1e-8, 1e-200),
    "complex64": Tolerance(1e-3, 1e-4, 1e-30),
}


@dataclass(frozen=True)
class Case:
    """Inputs, and what PyTorch eager makes of them."""

    name: str
    inputs: list[Array]
    expected: list[Array]


def example_case(model: ImportedModel) -> Case:
    """The example inputs through eager. Raises ExecutionFailed when the model itself fails on them."""
    try:
        return Case("example", model.example_inputs, model.reference.run(model.example_inputs))
    except Exception as error:
        raise ExecutionFailed(
            f"PyTorch could not run the model on its example inputs: {readable_message(error)} Send other `inputs`."
        ) from error


def make_cases(model: ImportedModel) -> list[Case]:
    """The example, and two sets of fresh inputs of the same signature, drawn with a fixed seed.

    The second set has another size for every symbol, where the model takes it. Raises ExecutionFailed.
    """
    example = example_case(model)
    generator = np.random.default_rng(SEED)
    shapes = [value.shape for value in example.inputs]
    first = _eager_case("random_0", model.reference, _draw(generator, example.inputs, shapes, like_example=False))
    resized = model.reference.resized(example.inputs) or shapes
    second = _eager_case("random_1", model.reference, _draw(generator, example.inputs, resized, like_example=True))
    if second is None:
        same_size = _draw(generator, example.inputs, shapes, like_example=True)
        second = _eager_case("random_1", model.reference, same_size)
    return [case for case in (example, first, second) if case is not None]


def _eager_case(name: str, reference: Reference, inputs: list[Array]) -> Case | None:
    """None when eager refuses these inputs, as a model that checks its inputs may: they prove nothing then."""
    try:
        return Case(name, inputs, reference.run(inputs))
    except Exception:  # noqa: BLE001 - any refusal of drawn inputs means the same here
        return None


def _draw(
    generator: np.random.Generator, examples: list[Array], shapes: list[tuple[int, ...]], like_example: bool
) -> list[Array]:
    return [_draw_one(generator, value, shape, like_example) for value, shape in zip(examples, shapes, strict=True)]


def _draw_one(generator: np.random.Generator, example: Array, shape: tuple[int, ...], like_example: bool) -> Array:
    kind = example.dtype.kind
    if kind == "b":
        return generator.integers(0, 2, shape).astype(example.dtype)
    if kind in "iu":
        # Between the example's bounds: indices outside a table would be an error in eager.
        low, high = (int(example.min()), int(example.max())) if example.size else (0, 0)
        return generator.integers(low, high, shape, dtype=np.dtype(example.dtype).type, endpoint=True)
    values = generator.standard_normal(shape)
    finite = example[np.isfinite(example)] if example.size else example
    if like_example and finite.size:
        values = np.clip(values * float(np.std(finite)) + float(np.mean(finite)), finite.min(), finite.max())
    return np.asarray(values, dtype=example.dtype)


def verify(session: Session, cases: list[Case], outputs: tuple[TensorSpec, ...]) -> JsonObject:
    """The Verification of a loaded library as JSON. Raises VerificationFailed, ExecutionFailed."""
    reports: dict[str, JsonObject] = {}
    for case in cases:
        actual = session.run(case.inputs)
        if len(actual) != len(case.expected) or len(actual) != len(outputs):
            raise VerificationFailed(
                f"The library gives {len(actual)} outputs, PyTorch {len(case.expected)}.", outputs=[]
            )
        for spec, mine, theirs in zip(outputs, actual, case.expected, strict=True):
            report = {"name": spec.name, **compare(mine, theirs), "case": case.name}
            if spec.name not in reports or _badness(report) > _badness(reports[spec.name]):
                reports[spec.name] = report
    result = [{key: value for key, value in report.items() if key != "excess"} for report in reports.values()]
    failed = [report for report in result if not report["passed"]]
    if failed:
        worst = failed[0]
        reason = worst.get("reason") or f"the largest absolute error is {worst['max_abs_error']:.3g}"
        raise VerificationFailed(
            f"Output {worst['name']!r} differs from PyTorch's on the inputs {worst['case']!r}: {reason}. "
            "The model uses something that the compiler computes otherwise; try another recipe, or another operator.",
            outputs=result,
        )
    return {"passed": True, "cases": [case.name for case in cases], "outputs": result}


def _badness(report: JsonObject) -> tuple[bool, float]:
    return (not report["passed"], float(report["excess"]))


def compare(actual: Array, expected: Array) -> JsonObject:
    """The figures of one output: all JSON numbers finite or null, `reason` in words where it did not pass.

    `excess` is the largest error in units of what is allowed, for ranking.
    """
    dtype = expected.dtype.name
    tolerance = _TOLERANCES.get(dtype, _EXACT)
    report: JsonObject = {"dtype": actual.dtype.name, "shape": list(actual.shape), "rtol": tolerance.rtol}
    report |= {"max_abs_error": None, "max_rel_error": None, "atol": tolerance.floor, "excess": float("inf")}
    if actual.dtype != expected.dtype:
        return report | _refusal(f"its dtype is {actual.dtype.name}, PyTorch's is {dtype}")
    if actual.shape != expected.shape:
        return report | _refusal(f"its shape is {list(actual.shape)}, PyTorch's is {list(expected.shape)}")
    special = _special_mismatch(actual, expected)
    if special is not None:
        return report | _refusal(special)
    finite = np.isfinite(expected)
    error, magnitude = _errors(actual[finite], expected[finite])
    atol = max(tolerance.scale_atol * _largest(magnitude), tolerance.floor)
    allowed = atol + tolerance.rtol * magnitude
    beyond = error > allowed
    some = error > 0
    with np.errstate(over="ignore"):
        relative = _largest(error[magnitude > 0] / magnitude[magnitude > 0])
        excess = _largest(error[some] / np.maximum(allowed[some], _TINY))
    report |= {
        "atol": atol,
        "max_abs_error": _number(_largest(error)),
        "max_rel_error": _number(relative),
        "excess": excess,
    }
    if beyond.any():
        count = int(beyond.sum())
        return report | _refusal(f"{count} of {error.size} values are beyond tolerance, by up to {_largest(error):.3g}")
    return report | {"passed": True}


def _refusal(reason: str) -> JsonObject:
    return {"passed": False, "reason": reason}


def _largest(values: Any) -> float:
    return float(values.max()) if values.size else 0.0


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _errors(actual: Array, expected: Array) -> tuple[Any, Any]:
    """Absolute differences and expected magnitudes as float64, exact where they matter: int64 does not wrap around."""
    if expected.dtype.kind in "biu":
        integers = object if expected.dtype.itemsize == 8 else np.int64
        mine, theirs = actual.astype(integers), expected.astype(integers)
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        mine, theirs = actual.astype(wide), expected.astype(wide)
    return np.abs(mine - theirs).astype(np.float64), np.abs(theirs).astype(np.float64)


def _special_mismatch(mine: Array, theirs: Array) -> str | None:
    if theirs.dtype.kind in "biu":
        return None
    nan = int((np.isnan(mine) != np.isnan(theirs)).sum())
    if nan:
        return f"{nan} values are NaN in one and not in the other"
    infinite = np.isinf(theirs) | np.isinf(mine)
    wrong = int((mine[infinite] != theirs[infinite]).sum())
    return f"{wrong} values are infinite in one and not in the other, or of the other sign" if wrong else None


def largest_error(session: Session, case: Case) -> float | None:
    """The largest absolute error of a step's module on the example; None when it is not a number.

    Raises ExecutionFailed.
    """
    actual = session.run(case.inputs)
    reports = [compare(mine, theirs) for mine, theirs in zip(actual, case.expected, strict=False)]
    errors = [report["max_abs_error"] for report in reports]
    if len(actual) != len(case.expected) or None in errors:
        return None
    return max(errors, default=0.0)
