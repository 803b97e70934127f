"""The lecture's generic translator: both operator sets, all formats, and a Problem for what it has no rule for.

The rules (service.compiler.importers.course_rules), both operator sets (service.compiler.importers.course_operators)
and the graph of an FX file (service.compiler.importers.course_graph) are tried through it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from service.catalogue import Catalogue
from service.compiler.compile import compile_model
from service.compiler.recipes import load_catalogue
from service.errors import ImportFailed
from service.nouns import CompileJob, Limits, ModelFormat, Target, TensorSpec, Translator, Verify
from tests.compiler.conftest import Run

LOWERED = ["annotate_tir_op_pattern", "fuse_ops", "fuse_tir"]


# Without annotations: torch.fx cannot save those that are text.


class Mlp(nn.Module):
    """The lecture's network, smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.relu, self.out = nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.relu(self.dense(x)))


class ConvNet(nn.Module):
    """The lecture's exercise: convolution, relu, pooling, flatten, two dense layers, log softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu, self.pool, self.flatten = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        self.dense, self.out, self.last = nn.Linear(4 * 25, 16), nn.Linear(16, 10), nn.LogSoftmax(dim=1)

    def forward(self, x):
        features = self.flatten(self.pool(self.relu(self.conv(x))))
        return self.last(self.out(torch.relu(self.dense(features))))


class Functions(nn.Module):
    """What the call_function and call_method maps know, and a weight that is fetched by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.kernel = nn.Parameter(torch.randn(2, 1, 3, 3))

    def forward(self, x, y):
        h = torch.tanh(torch.matmul(x, self.weight)) + y * x - 2.0
        h = torch.sigmoid(h) / (1.5 + torch.exp(F.relu(h)))
        images = F.max_pool2d(F.conv2d(h.view(-1, 1, 8, 8), self.kernel, stride=1, padding=1), 2, padding=1)
        return F.softmax(F.linear(h, self.weight), dim=-1), F.log_softmax(torch.flatten(images, 1), dim=1)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x)


FORMS = [ModelFormat.EXPORTED_PROGRAM, ModelFormat.TORCHSCRIPT, ModelFormat.FX]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def written(module: nn.Module, inputs: tuple[torch.Tensor, ...], form: ModelFormat, folder: Path) -> str:
    path = folder / f"model.{form.value}"
    module = module.eval()
    if form is ModelFormat.EXPORTED_PROGRAM:
        torch.export.save(torch.export.export(module, inputs), path)
    elif form is ModelFormat.TORCHSCRIPT:
        torch.jit.trace(module, inputs).save(str(path))
    else:
        torch.save(torch.fx.symbolic_trace(module), path)
    return str(path)


def compiled(
    catalogue: Catalogue, module: nn.Module, shapes: dict[str, Any], form: ModelFormat, ops: str, folder: Path, passes: Any = "none"
) -> Run:  # fmt: skip
    torch.manual_seed(0)
    inputs = tuple(torch.randn(*shape) for shape in shapes.values())
    translator = Translator("course", ops)
    job = CompileJob(
        written(module, inputs, form, folder),
        form,
        catalogue.recipe(passes, Target(), 20, None, translator),
        Verify.EVERY_STEP,
        tuple(TensorSpec(name, shape, "float32") for name, shape in shapes.items()),
        None,
        str(folder),
        Limits(),
        translator=translator,
    )
    run = Run(job)
    compile_model(job, run.emit)
    assert run.end["verification"]["passed"]
    assert max(step["error"] for step in run.steps if step["error"] is not None) < 1e-5
    return run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("ops", "passes", "expected"),
    [
        ("relax", ["fuse_dense_add", "lower_to_tensorir", "fuse_tir"], {"relax.matmul": 2, "relax.add": 2, "relax.nn.relu": 1, "relax.permute_dims": 2}),
        ("tensorir", LOWERED, {"call_tir": 5}),
    ],
)  # fmt: skip
def test_the_mlp_from_every_format_with_both_operator_sets(catalogue, tmp_path, form, ops, passes, expected) -> None:
    run = compiled(catalogue, Mlp(), {"x": (3, 12)}, form, ops, tmp_path, passes)
    assert run.steps[0]["ops"] == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ops", ["relax", "tensorir"])
def test_the_convolutional_network(catalogue, tmp_path, form, ops) -> None:
    compiled(catalogue, ConvNet(), {"x": (2, 1, 12, 12)}, form, ops, tmp_path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ops", ["relax", "tensorir"])
def test_functions_methods_and_weights_by_name(catalogue, tmp_path, form, ops) -> None:
    compiled(catalogue, Functions(), {"x": (8, 8), "y": (8, 8)}, form, ops, tmp_path)


def test_the_kernels_of_tensor_expressions_are_named_after_their_functions(catalogue, tmp_path) -> None:
    run = compiled(catalogue, Mlp(), {"x": (3, 12)}, ModelFormat.FX, "tensorir", tmp_path)
    names = [re.sub(r"\d", "", each["name"]) for each in run.snapshots[0]["functions"] if each["kind"] == "tensorir"]
    assert sorted(names) == ["add", "add", "dense", "dense", "relu"]


def test_variables_are_named_after_the_nodes_that_they_come_from(catalogue, tmp_path) -> None:
    run = compiled(catalogue, Mlp(), {"x": (3, 12)}, ModelFormat.FX, "relax", tmp_path)
    assert 'relu: R.Tensor((3, 8), dtype="float32") = R.nn.relu(' in run.snapshots[0]["text"]
    origins = {origin["node"]: origin for origin in run.snapshots[0]["origins"]}
    assert {name: origin["operator"] for name, origin in origins.items()} == {
        "dense": "Linear", "relu": "ReLU", "out": "Linear",
    }  # fmt: skip
    assert origins["relu"]["source"].startswith("forward:")


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_may_be_any(catalogue, tmp_path, form) -> None:
    path = written(Mlp(), (torch.randn(3, 12),), form, tmp_path)
    if form is ModelFormat.EXPORTED_PROGRAM:
        batch = torch.export.Dim("batch", min=1, max=64)
        torch.export.save(
            torch.export.export(Mlp().eval(), (torch.randn(3, 12),), dynamic_shapes={"x": {0: batch}}), path
        )
    translator, inputs = Translator("course", "tensorir"), (TensorSpec("x", ("batch", 12), "float32"),)
    recipe = catalogue.recipe(LOWERED, Target(), 20, None, translator)
    job = CompileJob(path, form, recipe, Verify.ARTIFACT, inputs, None, str(tmp_path), Limits(), translator=translator)
    run = Run(job)
    compile_model(job, run.emit)
    assert run.named("signature")[0]["signature"]["inputs"][0]["shape"] == ["batch", 12]
    assert "batch" in run.snapshots[0]["text"]


@pytest.mark.parametrize(
    ("form", "node", "called"),
    [(ModelFormat.FX, "norm", "LayerNorm"), (ModelFormat.EXPORTED_PROGRAM, "layer_norm", "aten.layer_norm.default")],
)
def test_what_it_has_no_rule_for_is_named(catalogue, tmp_path, form, node, called) -> None:
    with pytest.raises(ImportFailed, match="leave `import` out") as caught:
        compiled(catalogue, Norm(), {"x": (2, 8)}, form, "relax", tmp_path)
    assert f"node {node!r} ({called})" in caught.value.detail
    assert caught.value.extensions == {"step": 0, "node": node, "operators": [called]}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: nn.MaxPool2d(2, ceil_mode=True), "neither ceil_mode nor return_indices"),
        (lambda: nn.Conv2d(1, 1, 3, padding="same"), "pads with zeros, by numbers"),
    ],
)
def test_an_argument_that_a_rule_does_not_take_is_named(catalogue, tmp_path, build, words) -> None:
    with pytest.raises(ImportFailed, match=words):
        compiled(catalogue, nn.Sequential(build()), {"input": (1, 1, 5, 5)}, ModelFormat.FX, "tensorir", tmp_path)
