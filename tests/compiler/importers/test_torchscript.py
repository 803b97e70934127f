"""TorchScript files: what they become, and what of them is refused, with its source line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from service.compiler.importers.torchscript import load_program
from service.errors import ImportFailed, SignatureMismatch
from service.nouns import ModelFormat, TensorSpec
from tests.compiler.readers.test_pt2 import job_of, same

# torch.jit.trace tells of every size that it fixes.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
Program = Any


def load(folder: Path, module: Any, inputs: dict[str, tuple[Any, str]] | None = None, **rest: Any) -> Program:
    """The program of a scripted (or given) module; `inputs` are shapes and dtypes by name."""
    script = module if isinstance(module, torch.jit.ScriptModule) else torch.jit.script(module.eval())
    torch.jit.save(script, folder / "m.pt")
    declared = None if inputs is None else tuple(TensorSpec(name, *rest) for name, rest in inputs.items())
    return load_program(job_of(folder / "m.pt", folder, ModelFormat.TORCHSCRIPT, inputs=declared, **rest))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mha(x, x, x)[0]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
        if x.dim() != 3:
            raise ValueError("three dimensions, please")
        y, _ = self.cell(x)
        return self.head(y)


class Shapes(nn.Module):
    """Sizes that become numbers, lists and tuples."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b, t = x.size(0), x.shape[1]
        parts = [x[:, i] * float(i + 1) for i in range(3)]
        return torch.stack(parts, 1).reshape(b, -1), x.view(b * t, -1) / (t + 1)


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


HONEST: dict[str, tuple[Callable[[], nn.Module], str, tuple[Any, ...], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), "input", ("batch", 4), (5, 4)),
    "convnet": (convnet, "input", ("batch", 1, 8, 8), (3, 1, 8, 8)),
    "attention": (Attends, "x", ("batch", 5, 8), (4, 5, 8)),
    "tagger": (Tagger, "x", ("batch", 4, 8), (2, 4, 8)),
    "shapes": (Shapes, "x", ("batch", 4, 6), (7, 4, 6)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, batch_first=True), "src", ("batch", 3, 8), (2, 3, 8)),
    "embedding": (lambda: nn.Embedding(5, 3), "input", ("n",), (6,)),
    "norms": (
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Conv1d(4, 4, 3), nn.SiLU()),
        "input",
        ("n", 4, 9),
        (2, 4, 9),
    ),
}


@pytest.mark.parametrize("kind", ["scripted", "traced"])
@pytest.mark.parametrize("name", HONEST)
def test_one_program_takes_every_batch_size(tmp_path: Path, name: str, kind: str) -> None:
    torch.manual_seed(0)
    make, argument, shape, other = HONEST[name]
    module = make().eval()
    dtype = "int64" if name == "embedding" else "float32"
    sizes = [dim if isinstance(dim, int) else 2 for dim in shape]
    example = torch.randint(0, 4, sizes) if dtype == "int64" else torch.randn(sizes)
    script = torch.jit.script(module) if kind == "scripted" else torch.jit.trace(module, example, check_trace=False)
    program = load(tmp_path, script, {argument: (shape, dtype)})
    for size in (sizes, other):
        x = torch.randint(0, 4, size) if dtype == "int64" else torch.randn(size)
        given, expected = program.module()(x), module(x)
        for left, right in zip(
            *(value if isinstance(value, tuple) else (value,) for value in (given, expected)), strict=True
        ):
            torch.testing.assert_close(left, right)
    assert [spec.arg.name for spec in program.graph_signature.input_specs][-1] == argument


def test_convolutions_are_the_core_operator(tmp_path: Path) -> None:
    traced = torch.jit.trace(convnet().eval(), torch.randn(2, 1, 8, 8))
    program = load(tmp_path, traced)
    assert torch.ops.aten._convolution.default not in {node.target for node in program.graph.nodes}


def test_a_traced_module_brings_its_shapes(tmp_path: Path) -> None:
    program = load(tmp_path, torch.jit.trace(nn.Linear(4, 2), torch.randn(3, 4)))
    assert program.example_inputs[0][0].shape == (3, 4)


def test_shapes_may_come_from_example_inputs(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    np.savez(tmp_path / "inputs.npz", input=x)
    program = load(tmp_path, nn.Linear(4, 2), inputs_path=str(tmp_path / "inputs.npz"))
    assert same(program.example_inputs[0][0], torch.from_numpy(x))


def test_missing_inputs_name_the_forwards_parameters(tmp_path: Path) -> None:
    with pytest.raises(SignatureMismatch) as caught:
        load(tmp_path, Tagger())
    assert caught.value.extensions["expected"] == ["x", "state"]
    assert "`x: Tensor`, `state: Optional[Tensor]` (optional)" in caught.value.detail


@pytest.mark.parametrize(("name", "words"), [("y", "Did you mean"), ("state", "lacks 'x'"), ("zzz", "names 'zzz'")])
def test_wrong_inputs_are_named(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(SignatureMismatch, match="forward takes"):
        load(tmp_path, Tagger(), {name: ((2, 4, 8), "float32")})


def test_shapes_that_the_model_cannot_take_are_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed) as caught:
        load(tmp_path, Tagger(), {"x": ((2, 8), "float32")})
    assert "three dimensions, please" in caught.value.detail
    assert "test_torchscript.py" in caught.value.detail


class Sets(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.last
        self.last = x
        return y


class Adds(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total[0:2].add_(x[0:2])
        return x + self.total


class OnData(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x - 1


class OnNumber(nn.Module):
    def forward(self, x: torch.Tensor, rate: int) -> torch.Tensor:
        if rate == 16000:
            return x * 2
        return x - 1


class Loops(nn.Module):
    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        for _ in range(times):
            x = x * 2
        return x


class UntilSmall(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while float(x.abs().max()) > 1.0:
            x = x / 2
        return x


REFUSED = [
    (Sets, "state", "sets its attribute `last`", "self.last = x"),
    (Adds, "state", "changes its buffer `total`", "self.total[0:2].add_"),
    (OnData, "branch", "branches on the values of the input `x`", "if bool(x.sum() > 0)"),
    (OnNumber, "branch", "branches on the plain int `rate`", "if rate == 16000"),
    (Loops, "branch", "loops on the plain int `times`", "for _ in range(times)"),
    (UntilSmall, "branch", "loops on the values of the input `x`", "while float("),
]


@pytest.mark.parametrize(("module", "kind", "words", "line"), REFUSED)
def test_state_and_branches_are_refused_with_their_line(
    tmp_path: Path, module: type[nn.Module], kind: str, words: str, line: str
) -> None:
    with pytest.raises(ImportFailed) as caught:
        load(tmp_path, module())
    assert words in caught.value.detail
    constructs = [construct for construct in caught.value.extensions["constructs"] if words in construct["what"]]
    assert constructs[0]["kind"] == kind
    assert line in constructs[0]["source_line"]
    assert constructs[0]["source_line"].startswith("test_torchscript.py:")


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor


def test_a_number_without_a_default_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="`factor` is no tensor but a float"):
        load(tmp_path, Scaled(), {"x": ((3,), "float32")})


def test_a_dimension_with_one_size_only_is_told(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="must be declared as that number"):
        load(tmp_path, nn.Linear(4, 2), {"input": (("batch", "features"), "float32")})


class Variants(nn.Module):
    """Branches on attributes, buffers, defaults, and on inputs that are left out: all are known when it is compiled."""

    def __init__(self):
        super().__init__()
        self.mode, self.eps, self.flag = 2, 1e-3, True
        self.register_buffer("steps", torch.tensor(3))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, causal: bool = True, times: int = 2) -> torch.Tensor:
        if self.mode == 1:
            x = x + 1
        elif self.mode == 2 and self.flag and self.eps > 1e-4:
            x = x * 2
        if mask is not None and bool(mask.any()):
            x = x.masked_fill(mask, 0.0)
        if causal:
            x = torch.tril(x)
        for step in range(times + int(self.steps)):
            x = x + step
        return x


def test_what_is_known_when_the_module_is_frozen_is_no_branch(tmp_path: Path) -> None:
    program = load(tmp_path, Variants(), {"x": (("batch", 4), "float32")})
    x = torch.randn(5, 4)
    assert same(program.module()(x), Variants()(x, None))


class Resizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return nn.functional.interpolate(y, size=[3, 5], mode="nearest")


def test_scripted_resizing_and_transformers_are_taken(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 4, 6)
    program = load(tmp_path, Resizes(), {"x": ((1, 2, 4, 6), "float32")})
    assert same(program.module()(x), Resizes()(x))
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    program = load(tmp_path, encoder, {"src": ((2, 5, 8), "float32")})
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(program.module()(x), encoder(x), rtol=1e-4, atol=1e-4)
