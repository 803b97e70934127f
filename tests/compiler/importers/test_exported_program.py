"""Archives: their Signature, their examples, and the models that cannot be compiled faithfully."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from service.compiler.compile import compile_model
from service.compiler.importers import find_importer
from service.errors import ExecutionFailed, ImportFailed
from service.nouns import ModelFormat, TensorSpec
from tests.compiler.conftest import MakeRun, save


class Calls(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total.clone()


class Keyword(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, shift: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": x * scale, "b": x + shift}


class Optional(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, None]:
        return (x + 1 if mask is None else x * mask), None


def imported(make_run: MakeRun, path: str) -> Any:
    return find_importer(ModelFormat.EXPORTED_PROGRAM).import_model(make_run(path).job)


def test_the_signature_has_names_shapes_dtypes_and_symbols(make_run: MakeRun, models: dict[str, str]) -> None:
    signature = imported(make_run, models["mixed_dynamic"]).signature
    symbol = signature.inputs[0].shape[0]
    assert isinstance(symbol, str)
    assert signature.inputs == (TensorSpec("x", (symbol, 8), "float32"), TensorSpec("y", (symbol, 8), "float32"))
    assert [spec.name for spec in signature.outputs] == ["output_0", "output_1", "output_2"]
    assert signature.outputs[2].shape == (f"8*{symbol}",)


def test_keyword_inputs_and_dict_outputs_keep_their_order(compiled: MakeRun, tmp_path: Path) -> None:
    kwargs = {"shift": torch.full((2,), 5.0), "scale": torch.full((2,), 3.0)}
    program = torch.export.export(Keyword(), (torch.ones(2),), kwargs)
    torch.export.save(program, tmp_path / "m.pt2")
    run = compiled(str(tmp_path / "m.pt2"))
    names = [each["name"] for each in run.named("signature")[0]["signature"]["inputs"]]
    assert sorted(names) == ["scale", "shift", "x"]
    outputs = [each["name"] for each in run.named("signature")[0]["signature"]["outputs"]]
    assert outputs == ["a", "b"]


class Named(nn.Module):
    def forward(self, P: torch.Tensor, größe: torch.Tensor, both: dict[str, torch.Tensor]) -> torch.Tensor:  # noqa: N803
        return P + größe + both["a"]


def test_inputs_keep_the_names_that_the_user_gave_them(make_run: MakeRun, tmp_path: Path) -> None:
    inputs = (torch.ones(2), torch.ones(2), {"a": torch.ones(2)})
    signature = imported(make_run, save(Named(), inputs, tmp_path / "m.pt2")).signature
    assert [spec.name for spec in signature.inputs] == ["P", "größe", "both_a"]


def test_results_that_are_none_are_told(make_run: MakeRun, tmp_path: Path) -> None:
    path = save(Calls(lambda x: {"a": x + 1, "b": None}), (torch.ones(2),), tmp_path / "m.pt2")
    model = imported(make_run, path)
    assert [spec.name for spec in model.signature.outputs] == ["a"]
    assert any("always None" in note and note.endswith(": b.") for note in model.notes)


def test_the_examples_of_the_archive_are_used(make_run: MakeRun, tmp_path: Path) -> None:
    path = save(Calls(lambda x: x + 1), (torch.tensor([4.0, 5.0]),), tmp_path / "m.pt2")
    np.testing.assert_array_equal(imported(make_run, path).example_inputs[0], [4, 5])


def test_an_archive_without_examples_gets_random_ones(compiled: MakeRun, tmp_path: Path) -> None:
    program = torch.export.export(Calls(lambda x: x + 1), (torch.ones(3),))
    program.example_inputs = None
    torch.export.save(program, tmp_path / "m.pt2")
    assert compiled(str(tmp_path / "m.pt2")).end["verification"]["passed"]


def test_none_as_input_and_as_result_is_taken(compiled: MakeRun, tmp_path: Path) -> None:
    run = compiled(save(Optional(), (torch.ones(2), None), tmp_path / "m.pt2"))
    signature = run.named("signature")[0]["signature"]
    assert [each["name"] for each in signature["inputs"]] == ["x"]
    assert len(signature["outputs"]) == 1
    assert len(run.steps[0]["notes"]) == 2


@pytest.mark.parametrize("index", [-1, -3, 1])
def test_the_last_row_is_the_last_row(compiled: MakeRun, tmp_path: Path, index: int) -> None:
    path = save(Calls(lambda x: x[:, index] * 2), (torch.randn(2, 3, 4),), tmp_path / "m.pt2")
    assert compiled(path).end["verification"]["passed"]


def test_a_buffer_that_the_model_changes_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(save(Counting(), (torch.ones(3),), tmp_path / "m.pt2"))
    with pytest.raises(ImportFailed) as caught:
        compile_model(run.job, run.emit)
    assert caught.value.extensions["buffers"] == ["total"]
    assert "model.eval()" in caught.value.detail


def test_an_input_that_the_model_changes_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(save(Calls(lambda x: x.add_(1)), (torch.ones(3),), tmp_path / "m.pt2"))
    with pytest.raises(ImportFailed, match="changes its input"):
        compile_model(run.job, run.emit)


def test_random_operators_are_refused(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(save(Calls(lambda x: x + torch.randn(3)), (torch.ones(3),), tmp_path / "m.pt2"))
    with pytest.raises(ImportFailed, match="random") as caught:
        compile_model(run.job, run.emit)
    assert caught.value.extensions["operators"] == ["aten.randn.default"]


def test_all_unsupported_operators_are_named_with_their_places(make_run: MakeRun, tmp_path: Path) -> None:
    function = Calls(lambda x: torch.special.bessel_j0(x) + torch.special.erfcx(x))
    run = make_run(save(function, (torch.ones(3),), tmp_path / "m.pt2"))
    with pytest.raises(ImportFailed) as caught:
        compile_model(run.job, run.emit)
    counted = {each["operator"]: each["count"] for each in caught.value.extensions["unsupported"]}
    assert counted == {"aten.special_bessel_j0.default": 1, "aten.special_erfcx.default": 1}
    assert "test_exported_program.py" in caught.value.extensions["unsupported"][0]["places"][0]["source"]
    assert caught.value.extensions["operators"] == ["aten.special_bessel_j0.default", "aten.special_erfcx.default"]


def test_a_model_that_returns_no_tensor_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(save(Calls(lambda x: None), (torch.ones(3),), tmp_path / "m.pt2"))
    with pytest.raises(ImportFailed, match="no tensor"):
        compile_model(run.job, run.emit)


def test_inputs_that_the_model_itself_refuses_are_an_execution_failed(make_run: MakeRun, tmp_path: Path) -> None:
    path = save(Calls(lambda i: torch.arange(3.0)[i]), (torch.tensor([0, 2]),), tmp_path / "m.pt2")
    np.savez(tmp_path / "inputs.npz", args_0=np.array([0, 7]))
    run = make_run(path, inputs_path=str(tmp_path / "inputs.npz"))
    with pytest.raises(ExecutionFailed):
        compile_model(run.job, run.emit)


def test_eager_does_not_change_the_inputs_it_is_given(make_run: MakeRun, models: dict[str, str]) -> None:
    model = imported(make_run, models["mlp"])
    before = [value.copy() for value in model.example_inputs]
    first, second = (model.reference.run(model.example_inputs)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(before[0], model.example_inputs[0])


def test_fresh_inputs_of_another_size_change_every_symbol_within_its_bounds(make_run: MakeRun, tmp_path: Path) -> None:
    shapes = {"args": ({0: torch.export.Dim("n", min=2, max=9)}, {0: torch.export.Dim("m", min=2, max=6)})}
    function = Calls(lambda a, b: a.sum() + b)
    path = save(function, (torch.randn(3), torch.randn(6)), tmp_path / "m.pt2", dynamic_shapes=shapes)
    model = imported(make_run, path)
    assert model.reference.resized(model.example_inputs) == [(4,), (5,)]


def test_a_static_model_has_no_other_size(make_run: MakeRun, models: dict[str, str]) -> None:
    model = imported(make_run, models["mlp"])
    assert model.reference.resized(model.example_inputs) is None
