"""Whether a library computes what PyTorch eager computes: on the example, fresh, resized and special inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.compiler.importers import ImportedModel, Reference
from service.compiler.tolerance import compare, settled, tolerance_of, zeros_of_other_sign
from service.errors import ExecutionFailed, JsonObject, Problem, ServerProblem, VerificationFailed
from service.nouns import TensorSpec
from service.runtime.session import Array, Session
from service.runtime.tvm_errors import readable_message

SEED = 20240229
_FLOAT_KINDS = "fV"
_TINY = 1e-40
_LARGE = 1e4


@dataclass(frozen=True)
class Case:
    """Inputs, and what PyTorch eager makes of them; `wide` with float64 in place of narrower floats, where known.

    `opinions` asks for what else PyTorch gives: see `Reference.second_opinions`.
    """

    name: str
    inputs: list[Array]
    expected: list[Array]
    wide: list[Array] | None = None
    special: bool = False
    opinions: Callable[[], list[list[Array]]] = list


@dataclass(frozen=True)
class Cases:
    """The cases of one model, and what the comparison must know of it."""

    cases: list[Case]
    depth: int = 100
    notes: tuple[str, ...] = field(default=())


def example_case(model: ImportedModel) -> Case:
    """The example inputs through eager. Raises ExecutionFailed when the model itself fails on them."""
    try:
        expected = model.reference.run(model.example_inputs)
    except Exception as error:
        raise ExecutionFailed(
            f"PyTorch could not run the model on its example inputs: {readable_message(error)}. Send inputs that it "
            "takes, as an .npz in the part `inputs`; without them and without any in the file, relaxd draws some."
        ) from error
    inputs, reference = model.example_inputs, model.reference
    wide = reference.run_wide(inputs)
    return Case("example", inputs, expected, wide, opinions=lambda: reference.second_opinions(inputs, special=False))


def make_cases(model: ImportedModel) -> Cases:
    """The example; two sets of fresh inputs; two of other sizes for every symbol; and sets with special values.

    Drawn with a fixed seed. What eager refuses is left out, as it proves nothing. Raises ExecutionFailed.
    """
    example = example_case(model)
    reference = model.reference
    generator = np.random.default_rng(SEED)
    shapes = [value.shape for value in example.inputs]
    drawn = [
        ("random_0", _draw(generator, example.inputs, shapes, like_example=False)),
        ("random_1", _draw(generator, example.inputs, shapes, like_example=True)),
    ]
    for choice in (0, 1):
        resized = reference.resized(example.inputs, choice)
        if resized is not None:
            drawn.append((f"resized_{choice}", _draw(generator, example.inputs, resized, like_example=True)))
    special, notes = _special_inputs(generator, example.inputs, reference.makes_integers())
    tried = [_eager_case(name, reference, inputs) for name, inputs in drawn]
    tried += [_eager_case(name, reference, inputs, special=True) for name, inputs in special]
    return Cases([example, *[case for case in tried if case is not None]], reference.depth(), notes)


def _eager_case(name: str, reference: Reference, inputs: list[Array], special: bool = False) -> Case | None:
    """None when eager refuses these inputs, as a model that checks its inputs may: they prove nothing then."""
    try:
        expected, wide = reference.run(inputs), reference.run_wide(inputs)
        return Case(name, inputs, expected, wide, special, lambda: reference.second_opinions(inputs, special))
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
    finite = example[np.isfinite(example)].astype(np.float64) if example.size else example
    if like_example and finite.size:
        values = np.clip(values * float(np.std(finite)) + float(np.mean(finite)), finite.min(), finite.max())
    return np.asarray(values, dtype=example.dtype)


def _special_inputs(
    generator: np.random.Generator, examples: list[Array], makes_integers: bool
) -> tuple[list[tuple[str, list[Array]]], tuple[str, ...]]:
    """Sets of inputs in which a few elements are special; the others are fresh."""
    shapes = [value.shape for value in examples]
    notes: tuple[str, ...] = ()
    values: dict[str, list[float]] = {
        "zero": [0.0, -0.0],
        "tiny": [_TINY, -_TINY],
        "large": [_LARGE, -_LARGE],
        "nan": [math.nan],
        "infinite": [math.inf, -math.inf],
    }
    if makes_integers:
        notes = ("The model converts floats to integers, which has no defined result for NaN and infinities.",)
        values = {name: values[name] for name in ("zero", "tiny")}
    sets = []
    if any(value.dtype.kind in _FLOAT_KINDS and value.size for value in examples):
        for name, specials in values.items():
            fresh = _draw(generator, examples, shapes, like_example=False)
            sets.append((name, [_sprinkled(generator, value, specials) for value in fresh]))
    if any(value.dtype.kind in "iu" and value.size for value in examples):
        extremes = [_extremes(generator, value) for value in _draw(generator, examples, shapes, like_example=True)]
        sets.append(("integer_extremes", extremes))
    return sets, notes


def _sprinkled(generator: np.random.Generator, value: Array, specials: list[float]) -> Array:
    if value.dtype.kind not in _FLOAT_KINDS or not value.size:
        return value
    result = value.copy()
    places = generator.choice(value.size, size=min(value.size, len(specials)), replace=False)
    with np.errstate(over="ignore"):
        result.reshape(-1)[places] = np.array(specials[: len(places)]).astype(value.dtype)
    return result


def _extremes(generator: np.random.Generator, value: Array) -> Array:
    if value.dtype.kind not in "iu" or not value.size:
        return value
    limits = np.iinfo(value.dtype)
    result = value.copy()
    places = generator.choice(value.size, size=min(value.size, 2), replace=False)
    result.reshape(-1)[places] = [limits.max, limits.min][: len(places)]
    return result


def verify(session: Session, cases: Cases, outputs: tuple[TensorSpec, ...], special_values: str = "fail") -> JsonObject:
    """The Verification of a loaded library as JSON.

    What differs only on special values fails it, too, unless `special_values` is ``report``. An element may be another
    answer of PyTorch's (see `Reference.second_opinions`): it is not defined then, and the notes say so.
    Raises VerificationFailed, ExecutionFailed.
    """
    plain: dict[str, JsonObject] = {}
    special: dict[str, JsonObject] = {}
    notes = list(cases.notes)
    for case in cases.cases:
        worst = special if case.special else plain
        for spec, report in zip(outputs, _reports(session, case, cases.depth, outputs), strict=True):
            undefined, signs = report.pop("undefined", 0), report.pop("zero_signs", 0)
            if signs:
                notes.append(_other_sign(signs, spec.name, case.name))
            if undefined:
                notes.append(_undefined(undefined, spec.name, case.name))
            entry = {"name": spec.name, **report, "case": case.name}
            if spec.name not in worst or _badness(entry) > _badness(worst[spec.name]):
                worst[spec.name] = entry
    differing = [report for report in _public(special) if not report["passed"]]
    result = {
        "passed": True,
        "cases": [case.name for case in cases.cases],
        "outputs": _public(plain),
        "special_values": {"passed": not differing, "outputs": differing},
        "depth": cases.depth,
        "tolerances": {spec.dtype: tolerance_of(spec.dtype, cases.depth).to_json() for spec in outputs},
        "notes": notes,
    }
    failed = [report for report in _public(plain) if not report["passed"]]
    if failed or (differing and special_values != "report"):
        raise _failure(failed or differing, special=not failed, outputs=_public(plain), differing=differing)
    return result


def _other_sign(count: int, output: str, case: str) -> str:
    return f"{count} zeros of {output!r} have another sign than PyTorch's on the inputs {case!r}; they compare equal."


def _undefined(count: int, output: str, case: str) -> str:
    return (
        f"PyTorch does not define {count} elements of {output!r} on the inputs {case!r}: they name one of several "
        "equal elements, or its operators and its own decompositions of them disagree. The library gives one of these."
    )


def _public(reports: dict[str, JsonObject]) -> list[JsonObject]:
    return [{key: value for key, value in report.items() if key != "excess"} for report in reports.values()]


def _failure(
    failed: list[JsonObject], special: bool, outputs: list[JsonObject], differing: list[JsonObject]
) -> VerificationFailed:
    worst = failed[0]
    advice = "The model uses something that the compiler computes otherwise; try another recipe, or another operator."
    if special:
        advice = 'It differs only on special values; send `"special_values": "report"` to accept that.'
    return VerificationFailed(
        f"Output {worst['name']!r} differs from PyTorch's on the inputs {worst['case']!r}: {worst['reason']}. {advice}",
        outputs=outputs if not special else differing,
    )


def _reports(session: Session, case: Case, depth: int, outputs: tuple[TensorSpec, ...]) -> list[JsonObject]:
    try:
        actual = session.run(case.inputs)
    except ServerProblem:
        raise
    except Problem as problem:
        reason = f"the library fails where PyTorch does not: {problem.detail}"
        return [{"passed": False, "reason": reason, "excess": math.inf} for _ in outputs]
    if len(actual) != len(case.expected) or len(actual) != len(outputs):
        raise VerificationFailed(f"The library gives {len(actual)} outputs, PyTorch {len(case.expected)}.", outputs=[])
    wide: list[Any] = list(case.wide) if case.wide is not None else [None] * len(actual)
    scale = largest_input(case.inputs)
    triples = list(zip(actual, case.expected, wide, strict=True))
    reports = [compare(*each, depth=depth, input_scale=scale) for each in triples]
    if case.name == "zero":
        for report, each in zip(reports, triples, strict=True):
            report["zero_signs"] = zeros_of_other_sign(*each)
    if all(report["passed"] for report in reports):
        return reports
    opinions = [opinion for opinion in case.opinions() if len(opinion) == len(actual)]
    for index, (mine, theirs, wider) in enumerate(triples):
        if reports[index]["passed"] or mine.dtype != theirs.dtype:
            continue
        merged, count = settled(mine, theirs, [opinion[index] for opinion in opinions], depth)
        again = compare(mine, merged, wider, depth=depth, input_scale=scale)
        reports[index] = again | {"undefined": count} if again["passed"] else reports[index]
    return reports


def largest_input(inputs: list[Array]) -> float:
    """The largest finite magnitude of the inputs that are floats."""
    values = [np.abs(value[np.isfinite(value)].astype(np.float64)) for value in inputs if value.dtype.kind in "fV"]
    return max((float(value.max()) for value in values if value.size), default=0.0)


def _badness(report: JsonObject) -> tuple[bool, float]:
    return (not report["passed"], float(report["excess"]))
