"""The comparison with PyTorch: what passes, what does not, and that its figures are JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from service.compiler.importers import ImportedModel
from service.compiler.verify import Case, compare, largest_error, make_cases, verify
from service.errors import ExecutionFailed, VerificationFailed
from service.nouns import Signature, TensorSpec

NAN, INF = float("nan"), float("inf")


def f32(*values: float) -> np.ndarray:
    return np.array(values, "float32")


class Library:
    """A Session that computes what a test says."""

    def __init__(self, compute) -> None:
        self.compute = compute

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(value) for value in self.compute(*inputs)]


class Eager(Library):
    def resized(self, inputs: list[np.ndarray]) -> list[tuple[int, ...]] | None:
        return [(value.shape[0] + 1, *value.shape[1:]) for value in inputs]


def model(compute, *examples: np.ndarray) -> ImportedModel:
    return ImportedModel(None, Signature((), ()), list(examples), Eager(compute))


SPECS = (TensorSpec("output_0", (3,), "float32"),)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (f32(1, 2, 3), f32(1, 2, 3.0001)),
        (f32(NAN, INF, -INF), f32(NAN, INF, -INF)),
        (f32(0, 1e-5), f32(1e-6, 1e-5 + 1e-12)[:2] * 0 + f32(0, 1e-5)),
        (f32(), f32()),
        (np.array(True), np.array(True)),
        (np.array([2**62 + 1]), np.array([2**62 + 1])),
        (f32(1).astype("float16"), f32(1.005).astype("float16")),
        (f32(0, 0), f32(0, 0)),
    ],
)
def test_what_is_equal_within_tolerance_passes(actual: np.ndarray, expected: np.ndarray) -> None:
    report = compare(actual, expected)
    assert report["passed"]
    report.pop("excess")
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize(
    ("actual", "expected", "reason"),
    [
        (f32(1, 2), f32(1, 2.1), "beyond tolerance"),
        (f32(1e-6, 2e-6), f32(2e-6, 1e-6), "beyond tolerance"),
        (f32(1, 0), f32(1, NAN), "NaN"),
        (f32(NAN), f32(1), "NaN"),
        (f32(INF), f32(-INF), "infinite"),
        (f32(INF), f32(3e38), "infinite"),
        (f32(1), np.array([1.0]), "dtype"),
        (f32(1, 2), f32(1, 2).reshape(2, 1), "shape"),
        (np.array([2**62 + 1]), np.array([2**62]), "beyond tolerance"),
        (np.array([True]), np.array([False]), "beyond tolerance"),
        (np.array([1.0]), np.array([1.00001]), "beyond tolerance"),
        (np.array([-(2**63)]), np.array([2**63 - 1]), "beyond tolerance"),
    ],
)
def test_what_differs_does_not_and_says_why(actual: np.ndarray, expected: np.ndarray, reason: str) -> None:
    report = compare(actual, expected)
    assert not report["passed"]
    assert reason in report["reason"]
    report.pop("excess")
    json.dumps(report, allow_nan=False)


def test_a_relative_error_too_large_for_a_number_is_null() -> None:
    report = compare(np.array([1e300]), np.array([5e-324]))
    assert report["max_rel_error"] is None
    assert not report["passed"]


def test_the_worst_case_of_each_output_is_reported() -> None:
    cases = [Case("example", [f32(1)], [f32(1)]), Case("random_0", [f32(1)], [f32(1.0005)])]
    report = verify(Library(lambda x: [x]), cases, SPECS)
    assert report["passed"]
    assert report["cases"] == ["example", "random_0"]
    assert report["outputs"][0]["case"] == "random_0"


def test_a_planted_wrong_library_fails_and_the_figures_are_kept() -> None:
    cases = make_cases(model(lambda x: [np.tanh(x)], f32(0.1, 0.2, 0.3)))
    with pytest.raises(VerificationFailed) as caught:
        verify(Library(lambda x: [x]), cases, SPECS)
    assert caught.value.extensions["outputs"][0]["name"] == "output_0"
    json.dumps(caught.value.to_json(), allow_nan=False)


def test_a_library_that_ignores_its_input_is_caught_by_fresh_inputs() -> None:
    cases = make_cases(model(lambda x: [x * 2], f32(1, 2, 3)))
    with pytest.raises(VerificationFailed) as caught:
        verify(Library(lambda x: [f32(2, 4, 6)]), cases, SPECS)
    assert caught.value.extensions["outputs"][0]["case"] != "example"


def test_a_missing_output_fails() -> None:
    with pytest.raises(VerificationFailed):
        verify(Library(lambda x: []), make_cases(model(lambda x: [x], f32(1))), SPECS)


def test_fresh_inputs_are_the_same_every_time_and_other_than_the_example() -> None:
    first, second = (make_cases(model(lambda x: [x], f32(1, 2, 3))) for _ in range(2))
    assert [case.name for case in first] == ["example", "random_0", "random_1"]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.inputs[0], other.inputs[0])
    assert not np.array_equal(first[0].inputs[0], first[1].inputs[0])


def test_one_fresh_set_has_another_size_where_the_model_takes_it() -> None:
    assert make_cases(model(lambda x: [x], f32(1, 2, 3)))[2].inputs[0].shape == (4,)

    def only_three(x: np.ndarray) -> list[np.ndarray]:
        assert x.shape == (3,)
        return [x]

    assert make_cases(model(only_three, f32(1, 2, 3)))[2].inputs[0].shape == (3,)


def test_whole_numbers_stay_within_the_example_and_bools_are_bools() -> None:
    cases = make_cases(model(lambda i, b: [i], np.array([3, 9] * 20), np.array([True] * 40)))
    for case in cases[1:]:
        assert case.inputs[0].min() >= 3
        assert case.inputs[0].max() <= 9
        assert case.inputs[1].dtype == bool
        assert not case.inputs[1].all()


def test_a_model_that_cannot_run_its_own_example_is_an_execution_failed() -> None:
    def broken(x: np.ndarray) -> list[np.ndarray]:
        raise RuntimeError("index 7 is out of bounds")

    with pytest.raises(ExecutionFailed, match="out of bounds"):
        make_cases(model(broken, f32(1)))


def test_the_error_of_a_step_is_null_where_it_is_no_number() -> None:
    case = Case("example", [f32(1)], [f32(2)])
    assert largest_error(Library(lambda x: [x]), case) == 1.0
    assert largest_error(Library(lambda x: [f32(NAN)]), case) is None
    assert largest_error(Library(lambda x: [f32(1, 2)]), case) is None
