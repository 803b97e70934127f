"""relaxd.tensors: what is sent and read is bit for bit the array."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from relaxd.nouns import TensorSpec
from relaxd.tensors import as_array, decode_outputs, encode_examples, encode_inference, name_inputs

from .fake_relaxd import echo

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64"]


def through_json(array: np.ndarray) -> np.ndarray:
    body = encode_inference("m", {"x": array})
    refuse = pytest.fail
    answer = json.dumps(echo(json.loads(body, parse_constant=refuse)))
    return decode_outputs(json.loads(answer))["x"]


def extremes(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([[True], [False]])
    if dtype.startswith("float"):
        info = np.finfo(dtype)
        values = [info.max, info.min, info.tiny, info.smallest_subnormal, -0.0, np.inf, -np.inf, np.nan, 1 / 3]
        return np.array([values], dtype)
    return np.array([[np.iinfo(dtype).max, np.iinfo(dtype).min, 0]], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_bit_for_bit(dtype: str) -> None:
    array = extremes(dtype)
    again = through_json(array)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    # The bits of a NaN are not carried, only that it is one.
    numbers = array == array  # noqa: PLR0124
    assert again[numbers].tobytes() == array[numbers].tobytes()
    assert np.isnan(again[~numbers]).all()


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_scalars_and_empty_arrays_keep_their_shape(shape: tuple[int, ...]) -> None:
    assert through_json(np.ones(shape, "float32")).shape == shape


def test_non_contiguous_and_big_endian_arrays_are_sent_in_row_order() -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    np.testing.assert_array_equal(through_json(array), array)


def test_non_finite_numbers_are_spelled_as_the_contract_says() -> None:
    body = json.loads(encode_inference("m", {"x": np.array([np.nan, np.inf, -np.inf, 1.5], "float32")}))
    assert body["inputs"][0]["data"] == ["NaN", "Infinity", "-Infinity", 1.5]


@pytest.mark.parametrize("value", [np.array([1j]), np.array(["a"]), np.array([None])])
def test_a_dtype_that_cannot_be_sent_is_refused_by_the_input_s_name(value: np.ndarray) -> None:
    with pytest.raises(TypeError, match="input 'x' has dtype"):
        encode_inference("m", {"x": value})


@pytest.mark.parametrize(
    ("value", "dtype", "sent_as"),
    [
        ([1, 2], "float32", "float32"),
        ([1.5], "float32", "float32"),
        ([1], "int8", "int8"),
        ([300], "int8", "int64"),
        ([1.5], "int64", "float64"),
        ([1e300], "float32", "float64"),
        ([float("inf")], "float32", "float32"),
        ([1], "bool", "int64"),
        (np.array([1.5]), "float32", "float64"),
    ],
)
def test_a_list_takes_the_signature_s_dtype_unless_that_would_change_it(
    value: object, dtype: str, sent_as: str
) -> None:
    array = as_array(value, TensorSpec("x", (1,), dtype))  # type: ignore[arg-type]
    assert array.dtype == sent_as
    np.testing.assert_array_equal(array, np.asarray(value, array.dtype))


def test_bfloat16_which_numpy_lacks_is_read_as_float32() -> None:
    tensor = {"name": "y", "datatype": "BF16", "shape": [2], "data": [1.5, "-Infinity"]}
    output = decode_outputs({"outputs": [tensor]})["y"]
    assert (output.dtype.name, output.tolist()) == ("float32", [1.5, -np.inf])


def test_one_array_takes_the_name_of_the_only_input() -> None:
    assert list(name_inputs(np.ones(1), [TensorSpec("tokens", (1,), "float64")])) == ["tokens"]


def test_one_array_for_a_model_of_two_inputs_is_refused_and_the_names_are_listed() -> None:
    specs = [TensorSpec("a", (1,), "float32"), TensorSpec("b", (1,), "float32")]
    with pytest.raises(ValueError, match="a, b"):
        name_inputs(np.ones(1), specs)


def test_example_inputs_are_an_npz_without_pickles_whatever_the_input_is_called() -> None:
    arrays = {"file": np.arange(3), "args_0": np.array(1.5, "float32")}
    with np.load(io.BytesIO(encode_examples(arrays)), allow_pickle=False) as archive:
        assert {name: archive[name].tolist() for name in archive.files} == {"file": [0, 1, 2], "args_0": 1.5}
        assert archive["args_0"].dtype == "float32"


def test_an_object_array_is_not_pickled_into_the_example_inputs() -> None:
    with pytest.raises(ValueError, match="allow_pickle=False"):
        encode_examples({"x": np.array([None])})
