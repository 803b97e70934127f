"""What the request says about inputs against what the model says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.example_inputs import read_inputs_file, reconcile_declared
from service.errors import InvalidInputsFile, SignatureMismatch
from service.nouns import Signature, TensorSpec

SIGNATURE = Signature(
    (TensorSpec("x", ("s0", 8), "float32"), TensorSpec("y", ("s0", "s1"), "int64")),
    (TensorSpec("output_0", ("2*s0 + s1",), "float32"),),
)


def declared(**changes: TensorSpec) -> tuple[TensorSpec, ...]:
    specs = {"x": TensorSpec("x", ("batch", 8), "float32"), "y": TensorSpec("y", ("batch", "n"), "int64")}
    return tuple({**specs, **changes}.values())


def test_declared_names_replace_the_symbols_everywhere() -> None:
    signature = reconcile_declared(SIGNATURE, declared())
    assert signature.inputs[1].shape == ("batch", "n")
    assert signature.outputs[0].shape == ("2*batch + n",)


def test_nothing_declared_changes_nothing() -> None:
    assert reconcile_declared(SIGNATURE, None) == SIGNATURE


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (TensorSpec("z", ("batch", 8), "float32"), "inputs[0].name"),
        (TensorSpec("x", ("batch", 8), "float64"), "inputs[0].dtype"),
        (TensorSpec("x", ("batch",), "float32"), "inputs[0].shape"),
        (TensorSpec("x", ("batch", 9), "float32"), "inputs[0].shape[1]"),
        (TensorSpec("x", (4, 8), "float32"), "inputs[0].shape[0]"),
        (TensorSpec("x", ("batch", "k"), "float32"), "inputs[0].shape[1]"),
        (TensorSpec("x", ("other", 8), "float32"), "inputs[1].shape[0]"),
        (TensorSpec("x", ("n", 8), "float32"), "inputs[1].shape[0]"),
    ],
)
def test_a_contradiction_names_its_field(spec: TensorSpec, field: str) -> None:
    with pytest.raises(SignatureMismatch) as caught:
        reconcile_declared(SIGNATURE, declared(x=spec))
    assert caught.value.extensions["field"] == field
    assert field in caught.value.detail


def test_a_missing_declaration_is_named() -> None:
    with pytest.raises(SignatureMismatch, match="'y'"):
        reconcile_declared(SIGNATURE, declared()[:1])


def write(tmp_path: Path, **arrays: np.ndarray) -> str:
    np.savez(tmp_path / "inputs.npz", **arrays)
    return str(tmp_path / "inputs.npz")


X, Y = np.zeros((3, 8), "float32"), np.zeros((3, 5), "int64")


def test_arrays_come_in_the_signature_s_order(tmp_path: Path) -> None:
    arrays = read_inputs_file(write(tmp_path, y=Y, x=X), SIGNATURE)
    assert [array.shape for array in arrays] == [(3, 8), (3, 5)]


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": X},
        {"x": X, "y": Y, "z": Y},
        {"x": X.astype("float64"), "y": Y},
        {"x": X[:, :7], "y": Y},
        {"x": X[:2], "y": Y},
        {"x": X[0], "y": Y},
    ],
    ids=["missing", "unknown", "dtype", "size", "symbol", "rank"],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(SignatureMismatch) as caught:
        read_inputs_file(write(tmp_path, **arrays), SIGNATURE)
    assert caught.value.extensions["input"] in ("x", "y", "z")


def test_what_is_no_archive_of_plain_arrays_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "single.npy", X)
    (tmp_path / "text").write_bytes(b"hello")
    pickled = write(tmp_path, x=np.array([{}], dtype=object))
    for path in (str(tmp_path / "single.npy"), str(tmp_path / "text"), pickled, str(tmp_path / "missing")):
        with pytest.raises(InvalidInputsFile):
            read_inputs_file(path, SIGNATURE)
