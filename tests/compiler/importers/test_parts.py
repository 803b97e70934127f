"""The parts of the importers of TorchScript and FX."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from service.compiler.importers.declared_inputs import Parameter, declared_arguments, described
from service.compiler.importers.layers import LayerBuilder
from service.compiler.importers.script_builtins import BUILTINS
from service.compiler.importers.script_constructs import find_constructs, refuse_constructs
from service.compiler.importers.script_interpreter import ScriptInterpreter
from service.compiler.importers.stored_tensors import restore
from service.compiler.importers.tracing import export_module
from service.compiler.readers.fx import Layer
from service.compiler.readers.script_sources import ScriptSources
from service.compiler.readers.tensors import Window
from service.compiler.readers.torch_file import StoredTensor
from service.errors import ImportFailed, SignatureMismatch
from service.nouns import TensorSpec
from tests.compiler.readers.test_pt2 import job_of

X, MASK = Parameter("x"), Parameter("mask", optional=True, type="Optional[Tensor]")


def job(folder: Path, *specs: TensorSpec, **rest: Any) -> Any:
    return job_of(folder / "m", folder, inputs=specs or None, **rest)


def test_equal_symbols_are_one_dimension(tmp_path: Path) -> None:
    specs = (TensorSpec("mask", ("n", 2), "bool"), TensorSpec("x", ("n", "m"), "float32"))
    arguments = declared_arguments(job(tmp_path, *specs), [X, MASK])
    assert list(arguments.tensors) == ["x", "mask"]
    assert arguments.tensors["x"].shape[0] == arguments.tensors["mask"].shape[0]
    assert arguments.tensors["x"].shape[0] != arguments.tensors["x"].shape[1]
    assert arguments.dynamic["x"][0] is arguments.dynamic["mask"][0]


def test_what_the_file_knows_is_used_last(tmp_path: Path) -> None:
    known = [TensorSpec("x", (2,), "int64")]
    assert declared_arguments(job(tmp_path), [X], known).tensors["x"].dtype is torch.int64
    np.savez(tmp_path / "i.npz", x=np.ones((3, 1), "float64"))
    given = declared_arguments(job(tmp_path, inputs_path=str(tmp_path / "i.npz")), [X], known)
    assert given.tensors["x"].shape == (3, 1)


def test_parameters_are_described_as_a_person_would() -> None:
    assert described([X, MASK]) == "`x: Tensor`, `mask: Optional[Tensor]` (optional)"


def test_a_parameter_that_is_no_tensor_cannot_be_declared(tmp_path: Path) -> None:
    with pytest.raises(SignatureMismatch, match="no tensor but a int"):
        declared_arguments(job(tmp_path, TensorSpec("k", (1,), "int64")), [Parameter("k", is_tensor=False, type="int")])


def test_tensors_of_one_storage_share_its_memory() -> None:
    data = np.arange(6, dtype="float32").tobytes()
    first = StoredTensor("0", Window("float32", (2,), (1,), 0))
    second = StoredTensor("0", Window("float32", (2,), (2,), 1), is_parameter=True, requires_grad=True)
    one, (two, three) = restore([first, (second, 3)], {"0": data})
    assert two.tolist() == [1, 3]
    assert isinstance(two, nn.Parameter)
    assert three == 3
    one[1] = 9
    assert two[0] == 9


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        ("aten::floordiv", (-7, 2), -4), ("aten::remainder", (-7, 3), 2), ("aten::div", (7, 2), 3.5),
        ("aten::div", (-7, 2, "trunc"), -3), ("aten::__range_length", (0, 10, 3), 4), ("aten::slice", ([1, 2, 3], 1), [2, 3]),
        ("aten::__derive_index", (2, 1, 3), 7), ("aten::add", ([1], [2]), [1, 2]), ("aten::add", (1, 2, 3), 7),
        ("aten::format", ("{} of {}", 1, "x"), "1 of x"), ("aten::__contains__", ([1, 2], 2), True), ("aten::len", ("ab",), 2),
        ("aten::floor", (1.5,), math.floor(1.5)), ("aten::sub", (5, 2, 2), 1),
    ],
)  # fmt: skip
def test_numbers_strings_and_lists_are_computed_as_torchscript_does(kind: str, arguments: Any, expected: Any) -> None:
    assert BUILTINS[kind](*arguments) == expected


class Loops(nn.Module):
    def forward(self, x: torch.Tensor, flag: bool = False) -> tuple[torch.Tensor, list[int]]:
        sizes: list[int] = []
        for i in range(x.dim()):
            sizes.append(x.size(i) * (i + 1))
            x = x + float(i)
        if flag:
            x = -x
        return x, sizes


def frozen(module: nn.Module) -> Any:
    return torch.jit.freeze(torch.jit.script(module.eval()))


def test_the_interpreter_does_what_torchscript_does() -> None:
    module = frozen(Loops())
    x = torch.randn(2, 3)
    for flag in (False, True):
        given, sizes = ScriptInterpreter(module, str).run({"x": x, "flag": flag})
        expected, expected_sizes = module(x, flag)
        assert torch.equal(given, expected)
        assert sizes == expected_sizes


def test_a_flag_with_a_default_is_no_branch_and_without_is_one() -> None:
    graph = frozen(Loops()).graph
    assert find_constructs(graph, ScriptSources({}), frozenset({"flag"})) == []
    (construct,) = find_constructs(graph, ScriptSources({}), frozenset())
    assert construct.to_json()["what"] == "it branches on the plain bool `flag`"
    with pytest.raises(ImportFailed) as caught:
        refuse_constructs([construct] * 9)
    assert "and 3 more" in caught.value.detail


def test_errors_of_an_export_say_where(tmp_path: Path) -> None:
    arguments = declared_arguments(job(tmp_path, TensorSpec("input", (2, 5), "float32")), [Parameter("input")])
    with pytest.raises(ImportFailed) as caught:
        export_module(nn.Linear(4, 2), arguments, job(tmp_path), lambda _: "here:1")
    assert caught.value.extensions["source_line"] == "here:1"


def test_a_layer_cannot_hide_a_method() -> None:
    builder = LayerBuilder({}, lambda name: name)
    with pytest.raises(ImportFailed, match="hides a method"):
        builder.fill(nn.Linear(1, 1), Layer("Linear", attributes={"forward": 1}))
    with pytest.raises(ImportFailed, match="does not take"):
        builder.fill(nn.Module(), Layer("Module", children={"a": Layer("Evil")}))
