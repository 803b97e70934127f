"""The comparison with PyTorch: what passes, what does not, and that its figures are JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from service.compiler.importers import ImportedModel
from service.compiler.tolerance import compare
from service.compiler.verify import Case, Cases, make_cases, verify
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
    def __init__(self, compute, wide=None, integers: bool = False, others=()) -> None:
        super().__init__(compute)
        self.others = others
        self.wide = wide
        self.integers = integers

    def run_wide(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        return None if self.wide is None else [np.asarray(value) for value in self.wide(*inputs)]

    def resized(self, inputs: list[np.ndarray], choice: int = 0) -> list[tuple[int, ...]] | None:
        return [(value.shape[0] + 1 + choice, *value.shape[1:]) for value in inputs]

    def second_opinions(self, inputs: list[np.ndarray], special: bool) -> list[list[np.ndarray]]:
        return [[np.asarray(value) for value in opinion(*inputs)] for opinion in self.others]

    def depth(self) -> int:
        return 100

    def makes_integers(self) -> bool:
        return self.integers


def model(compute, *examples: np.ndarray, **options) -> ImportedModel:
    return ImportedModel(None, Signature((), ()), list(examples), Eager(compute, **options))


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
    report = verify(Library(lambda x: [x]), Cases(cases), SPECS)
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
    first, second = (make_cases(model(lambda x: [x], f32(1, 2, 3))).cases for _ in range(2))
    names = [case.name for case in first]
    assert names[:5] == ["example", "random_0", "random_1", "resized_0", "resized_1"]
    assert names[5:] == ["zero", "tiny", "large", "nan", "infinite"]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.inputs[0], other.inputs[0])
    assert not np.array_equal(first[0].inputs[0], first[1].inputs[0])


def test_two_fresh_sets_have_other_sizes_where_the_model_takes_them() -> None:
    shapes = [case.inputs[0].shape for case in make_cases(model(lambda x: [x], f32(1, 2, 3))).cases]
    assert shapes[3:5] == [(4,), (5,)]

    def only_three(x: np.ndarray) -> list[np.ndarray]:
        assert x.shape == (3,)
        return [x]

    assert {case.inputs[0].shape for case in make_cases(model(only_three, f32(1, 2, 3))).cases} == {(3,)}


def test_special_values_stand_in_cases_of_their_own() -> None:
    cases = {case.name: case for case in make_cases(model(lambda x: [x], np.arange(8.0))).cases}
    assert np.isnan(cases["nan"].inputs[0]).sum() == 1
    assert np.isinf(cases["infinite"].inputs[0]).sum() == 2
    assert (cases["zero"].inputs[0] == 0).sum() == 2
    assert all(
        cases[name].special == (name not in ("example", "random_0", "random_1", "resized_0", "resized_1"))
        for name in cases
    )


def test_integer_extremes_are_tried_where_eager_takes_them() -> None:
    def table(i: np.ndarray) -> list[np.ndarray]:
        return [np.arange(10)[i]]

    assert "integer_extremes" in [case.name for case in make_cases(model(lambda i: [i], np.arange(4))).cases]
    assert "integer_extremes" not in [case.name for case in make_cases(model(table, np.arange(4))).cases]


def test_no_nan_and_no_infinity_where_floats_become_integers() -> None:
    cases = make_cases(model(lambda x: [x.astype("int32")], f32(1, 2, 3), integers=True))
    assert not {"nan", "infinite", "large"} & {case.name for case in cases.cases}
    assert "integers" in cases.notes[0]


def loses_nan(x: np.ndarray) -> list[np.ndarray]:
    return [np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf)]


def test_a_difference_on_special_values_alone_fails_and_says_so() -> None:
    cases = make_cases(model(lambda x: [x], f32(1, 2, 3)))
    with pytest.raises(VerificationFailed, match="only on special values") as caught:
        verify(Library(loses_nan), cases, SPECS)
    assert caught.value.extensions["outputs"][0]["case"] == "nan"


def test_a_difference_on_special_values_is_reported_by_output_where_the_request_says_so() -> None:
    cases = make_cases(model(lambda x: [x], f32(1, 2, 3)))
    report = verify(Library(loses_nan), cases, SPECS, "report")
    assert report["passed"]
    assert not report["special_values"]["passed"]
    assert [each["name"] for each in report["special_values"]["outputs"]] == ["output_0"]
    json.dumps(report, allow_nan=False)


def test_what_pytorch_answers_in_two_ways_may_be_either_and_is_noted() -> None:
    cases = make_cases(model(lambda x: [x], f32(1, 2, 3), others=(loses_nan,)))
    report = verify(Library(loses_nan), cases, SPECS)
    assert report["special_values"]["passed"]
    assert any("does not define 1 elements of 'output_0' on the inputs 'nan'" in note for note in report["notes"])
    with pytest.raises(VerificationFailed):
        verify(Library(lambda x: [np.where(np.isnan(x), 7, x)]), cases, SPECS)


def test_zeros_of_another_sign_are_told_and_no_error() -> None:
    cases = make_cases(model(lambda x: [x], np.arange(8, dtype="float32")))
    specs = (TensorSpec("output_0", (8,), "float32"),)
    report = verify(Library(lambda x: [np.abs(x) * np.sign(x)]), cases, specs)
    assert report["passed"]
    assert [note for note in report["notes"] if "another sign" in note] == [
        "1 zeros of 'output_0' have another sign than PyTorch's on the inputs 'zero'; they compare equal."
    ]


def test_of_equal_elements_any_may_be_named() -> None:
    def last(x: np.ndarray) -> list[np.ndarray]:
        return [len(x) - 1 - np.argsort(x[::-1] * 0, kind="stable")]

    def first(x: np.ndarray) -> list[np.ndarray]:
        return [np.argsort(x * 0, kind="stable")]

    specs = (TensorSpec("output_0", (3,), "int64"),)
    assert verify(Library(first), make_cases(model(last, f32(1, 2, 3), others=(first,))), specs)["passed"]
    with pytest.raises(VerificationFailed):
        verify(Library(first), make_cases(model(last, f32(1, 2, 3))), specs)


def test_halves_are_held_to_a_few_times_eager_s_own_rounding() -> None:
    wide = np.linspace(1, 2, 64)
    expected = (wide * 1.01).astype("float16")
    assert compare((wide * 0.98).astype("float16"), expected, wide, depth=1)["passed"]
    assert not compare((wide * 0.7).astype("float16"), expected, wide, depth=1)["passed"]


def test_a_library_that_fails_where_eager_does_not_is_refused() -> None:
    def fails(x: np.ndarray) -> list[np.ndarray]:
        if np.isnan(x).any():
            raise ExecutionFailed("a kernel failed")
        return [x]

    with pytest.raises(VerificationFailed, match="fails where PyTorch does not"):
        verify(Library(fails), make_cases(model(lambda x: [x], f32(1, 2, 3))), SPECS)


def test_an_output_of_rounding_noise_passes_and_a_wrong_one_does_not() -> None:
    exact = np.zeros(50)
    noise = (np.random.default_rng(0).standard_normal(50) * 1e-7).astype("float32")
    assert compare(noise[::-1].copy(), noise, exact)["passed"]
    assert not compare(noise + np.float32(1e-3), noise, exact)["passed"]
    assert not compare(noise[::-1].copy(), noise)["passed"]


def test_what_eager_itself_is_undecided_about_may_be_either() -> None:
    assert compare(f32(INF, 1), f32(NAN, 1), np.array([INF, 1]))["passed"]
    assert not compare(f32(5, 1), f32(NAN, 1), np.array([INF, 1]))["passed"]
    assert compare(np.array([3]), np.array([4]), np.array([3]))["passed"]
    assert not compare(np.array([5]), np.array([4]), np.array([3]))["passed"]


def test_the_tolerance_grows_with_depth_and_is_stated() -> None:
    near = f32(1, 2, 3 * 1.0005)
    assert not compare(f32(1, 2, 3), near, depth=1)["passed"]
    assert compare(f32(1, 2, 3), near, depth=100)["passed"]
    report = verify(Library(lambda x: [x]), make_cases(model(lambda x: [x], f32(1, 2, 3))), SPECS)
    assert report["depth"] == 100
    assert report["tolerances"]["float32"]["rtol"] == pytest.approx(1e-3)


def test_whole_numbers_stay_within_the_example_and_bools_are_bools() -> None:
    cases = make_cases(model(lambda i, b: [i], np.array([3, 9] * 20), np.array([True] * 40)))
    for case in cases.cases[1:3]:
        assert case.inputs[0].min() >= 3
        assert case.inputs[0].max() <= 9
        assert case.inputs[1].dtype == bool
        assert not case.inputs[1].all()


def test_a_model_that_cannot_run_its_own_example_is_an_execution_failed() -> None:
    def broken(x: np.ndarray) -> list[np.ndarray]:
        raise RuntimeError("index 7 is out of bounds")

    with pytest.raises(ExecutionFailed, match="out of bounds"):
        make_cases(model(broken, f32(1)))


def test_a_sum_of_few_numbers_may_cancel_to_their_last_digits_and_no_further() -> None:
    expected, wide = np.array(0.625, np.float32), np.array(0.6250001)
    near, far = np.array(0.6252, np.float32), np.array(0.7, np.float32)
    assert compare(near, expected, wide, depth=1, input_scale=1e4)["passed"]
    assert not compare(far, expected, wide, depth=1, input_scale=1e4)["passed"]
    assert not compare(near, expected, wide, depth=1, input_scale=1.0)["passed"]
