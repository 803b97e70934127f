"""Models, jobs and modules that the compiler's tests share. One export per model and session: exporting is slow."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm.script import ir, relax, tirx

from service.compiler.compile import compile_model
from service.compiler.recipes import load_catalogue
from service.nouns import BUILD_STAGES, CompileJob, Limits, ModelFormat, Target, Verify

DATA = Path(__file__).parents[3] / "shared" / "data"


def module_of(text: str) -> tvm.IRModule:
    """The module that TVMScript in `text` describes."""
    return tvm.script.from_source(text, {"I": ir, "R": relax, "T": tirx})


class Mlp(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (12, 8, 4)) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(widths)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Mixed(nn.Module):
    """A matmul that feeds two adds, multiplies that feed adds, normalisation, softmax, three outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = torch.relu(self.a(x))
        m = h @ self.b.weight
        u, v, z = m + h, m + y, h * y + x
        q = self.norm(u * v + torch.softmax(z, -1))
        return self.b(q), (q * v + q * 2.0).sum(1), torch.nn.functional.gelu(z).reshape(-1)


def save(module: nn.Module, args: tuple[Any, ...], path: Path, **options: Any) -> str:
    torch.manual_seed(0)
    torch.export.save(torch.export.export(module.eval(), args, **options), path)
    return str(path)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of saved archives by name."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(7)
    batch = torch.export.Dim("batch", min=2, max=64)
    mixed, inputs = Mixed(), (torch.randn(4, 8), torch.randn(4, 8))
    return {
        "mlp": save(Mlp(), (torch.randn(3, 12),), folder / "mlp.pt2"),
        "mixed": save(mixed, inputs, folder / "mixed.pt2"),
        "mixed_dynamic": save(
            mixed, inputs, folder / "mixed_dynamic.pt2", dynamic_shapes={"x": {0: batch}, "y": {0: batch}}
        ),
    }


@dataclass
class Run:
    """What one compile_model emitted."""

    job: CompileJob
    events: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)

    def named(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [each["step"] for each in self.named("step") if each["step"]["stage"] not in BUILD_STAGES]

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """What the build made of the last step, by stage."""
        steps = [each["step"] for each in self.named("step")]
        return {step["stage"]: step for step in steps if step["stage"] in BUILD_STAGES}

    @property
    def end(self) -> dict[str, Any]:
        return self.named("succeeded")[0]

    def emit(self, body: dict[str, Any], blobs: tuple[bytes, ...]) -> None:
        self.events.append(json.loads(json.dumps(body, allow_nan=False)))
        self.snapshots.extend(json.loads(blob) for blob in blobs)


MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A Run whose job is made from a path, passes (a preset's name or a list) and other fields of CompileJob."""

    def make(
        path: str, passes: Any = None, *, verify: str = "artifact", target: Target | None = None, **rest: Any
    ) -> Run:
        recipe = load_catalogue().recipe(passes, target or Target(), 200, rest.pop("context", None))
        fields = {"inputs": None, "inputs_path": None, "limits": Limits(), "work_dir": str(tmp_path), **rest}
        model_format = fields.pop("format", ModelFormat.EXPORTED_PROGRAM)
        return Run(CompileJob(path, model_format, recipe, Verify(verify), **fields))

    return make


@pytest.fixture
def compiled(make_run: MakeRun) -> MakeRun:
    """As make_run, and compiled."""

    def compile_it(path: str, passes: Any = None, **rest: Any) -> Run:
        run = make_run(path, passes, **rest)
        compile_model(run.job, run.emit)
        return run

    return compile_it


@pytest.fixture(scope="session")
def lecture_mlp(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, np.ndarray, np.ndarray]:
    """The lecture's network as an archive, 500 images (500, 784) float32, and their labels."""
    if not DATA.exists():
        pytest.skip(
            f"{DATA} is not there: the lecture's weights and Fashion-MNIST images are not part of the repository"
        )
    weights = np.load(DATA / "lecture_mlp_params.npz")
    data = np.load(DATA / "fashion_mnist_500.npz")
    model = Mlp((784, 128, 10))
    for layer, number in zip(model.layers, (0, 1), strict=True):
        layer.weight.data = torch.from_numpy(weights[f"w{number}"])
        layer.bias.data = torch.from_numpy(weights[f"b{number}"])
    images = (data["images"].reshape(500, 784) / 255.0).astype("float32")
    batch = torch.export.Dim("batch", min=2, max=1024)
    path = tmp_path_factory.mktemp("lecture") / "mlp.pt2"
    save(model, (torch.from_numpy(images[:4]),), path, dynamic_shapes={"x": {0: batch}})
    return str(path), images, data["labels"]


def run_module(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """The outputs of a Relax module, built as build.py builds it."""
    from service.compiler.build import build_executable
    from service.compiler.target import tvm_target
    from service.runtime.session import Session

    return Session(build_executable(mod, tvm_target(Target()))).run(list(inputs))
