"""The example as JSON: what PyTorch gave, in the form of POST /infer."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from service.compiler.example import MOST_VALUES, example_json
from service.compiler.verify import Case
from service.nouns import Signature, TensorSpec
from tests.compiler.conftest import MakeRun


def signature(shape: tuple[int, ...], dtype: str) -> Signature:
    return Signature((TensorSpec("x", shape, dtype),), (TensorSpec("output_0", shape, dtype),))


def example(array: np.ndarray) -> object:
    found = example_json(Case("example", [array], [array]), signature(array.shape, array.dtype.name))
    return found and found["inputs"]["x"]


def test_values_of_every_kind_are_as_json_has_them() -> None:
    assert example(np.array([0.1, -1.5], "float32")) == [0.1, -1.5]
    assert example(np.array([[1], [-2]], "int64")) == [[1], [-2]]
    assert example(np.array([True, False])) == [True, False]
    assert example(np.array([np.nan, np.inf, -np.inf])) == ["NaN", "Infinity", "-Infinity"]
    assert example(np.array([1.5], ml_dtypes.bfloat16)) == [1.5]
    assert example(np.array(2.0, "float32")) == 2.0


def test_what_is_large_is_left_out() -> None:
    assert example(np.zeros(MOST_VALUES, "float32")) is not None
    assert example(np.zeros(MOST_VALUES + 1, "float32")) is None


def test_the_import_tells_it_where_every_step_is_verified(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], "course")
    told = run.snapshots[0]["example"]
    assert (told is not None) == (run.job.verify.value == "every_step")
    assert "example" not in run.snapshots[1]
