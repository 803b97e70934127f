"""The lecture on fusion: multiply-add, dense+add, lowering by call_te, FuseTIR, the limits, and patterns of one's own.

Every Compilation is checked against PyTorch after every step. docs/lectures.md tells the same in prose.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import relaxd
import torch
from digits import Digits, agreement, export, heading, mlp, server_url
from torch import nn

GENERIC = ["legalize_ops", "annotate_tir_op_pattern", "fold_constant", "fuse_ops", "fuse_tir"]
LOWER = ["lower_to_tensorir", "fuse_tir"]

# A dense layer with its activation, by named nodes: the weight and the bias must be constants.
DENSE_RELU: dict[str, Any] = {
    "name": "dense_relu",
    "nodes": {
        "product": {"op": "matmul", "args": ["_", "weight"]},
        "sum": {"op": "add", "args": ["product", "bias"]},
        "result": {"op": "relu", "args": ["sum"]},
        "weight": {"constant": True, "rank": 2},
        "bias": {"constant": True, "rank": 1},
    },
}


class MultiplyAdd(nn.Module):  # type: ignore[misc]  # torch is Any by the settings of mypy
    """The lecture's first program."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y + x * y


class TwoAdds(nn.Module):  # type: ignore[misc]  # torch is Any by the settings of mypy
    """A matmul that two adds read: the limit of fusion by pattern."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = x @ w
        return (product + b) * (product + x)


def multiply_add(client: relaxd.Client, folder: Path) -> bool:
    """y + x * y as one operator, and as one kernel."""
    heading("y + x * y: fuse_ewise_fma")
    x, y = torch.arange(12.0).reshape(3, 4), torch.linspace(-1, 1, 12).reshape(3, 4)
    file = export(MultiplyAdd(), (x, y), folder / "fma.pt2")
    compilation = client.compile(file, passes=["fuse_ewise_fma", *LOWER], verify="every_step")
    print(compilation.diff("import", "fusion"))
    print(client.ir(compilation.id, "fuse_tir", function="ewise_fma"))
    (output,) = compilation.infer({"x": x.numpy(), "y": y.numpy()}).values()
    return bool(np.allclose(output, (y + x * y).numpy(), rtol=1e-6))


def dense_add(client: relaxd.Client, file: Path, model: nn.Module, digits: Digits) -> bool:
    """The `course` recipe on the MLP, step by step."""
    heading("dense + add: the recipe `course`")
    compilation = client.compile(file, passes="course", verify="every_step")
    print(compilation.table())
    for stage in ("fusion", "lowering", "fuse_tir"):
        print(f"\n# {stage}")
        print(compilation.ir(stage, function="main"))
    return agreement(compilation, model, digits)


def limits(client: relaxd.Client, folder: Path) -> bool:
    """A matmul that feeds two adds, by the lecture's fusion and by the generic one, side by side."""
    heading("the limits: a matmul that feeds two adds")
    torch.manual_seed(0)
    inputs = (torch.randn(8, 8), torch.randn(8, 8), torch.randn(8))
    file = export(TwoAdds(), inputs, folder / "two_adds.pt2")
    twice = {"name": "fuse_dense_add", "options": {"allow_duplicates": True}}
    recipes: dict[str, list[Any]] = {
        "fuse_dense_add": ["fuse_dense_add", *LOWER],
        "the same, computed twice": [twice, *LOWER],
        "generic fuse_ops": GENERIC,
    }
    same = True
    for name, passes in recipes.items():
        compilation = client.compile(file, passes=passes, verify="every_step")
        kernels = compilation.snapshot("fuse_tir").functions
        matmuls = sum(function.text.count("T.init()") for function in kernels)
        names = ", ".join(function.name for function in kernels if function.kind == "tensorir")
        print(f"    {name:<26} {matmuls} matmul in {len(kernels) - 1} kernels: {names}")
        for step in compilation.steps:
            for note in step.notes:
                print(f"      {step.pass_name}: {note}")
        (output,) = compilation.infer(
            dict(zip(("x", "w", "b"), (each.numpy() for each in inputs), strict=True))
        ).values()
        same = same and bool(np.allclose(output, TwoAdds()(*inputs).numpy(), rtol=1e-4, atol=1e-4))
    return same


def composition(client: relaxd.Client, file: Path, model: nn.Module, digits: Digits) -> bool:
    """A pattern of one's own first, then TVM's generic fusion of what it left."""
    heading("fuse_pattern, composed with generic fusion")
    custom = {"name": "fuse_pattern", "options": {"patterns": [DENSE_RELU]}}
    compilation = client.compile(file, passes=["fold_constant", custom, "generic"], verify="every_step")
    print(compilation.table())
    for step in compilation.steps:
        for pattern in step.details.get("patterns", []):
            for match in pattern["matches"]:
                print(f"    {pattern['name']} matched at {match['at']}: {match['nodes']}")
            for miss in pattern["near_misses"]:
                print(f"    {pattern['name']} nearly matched at {miss['at']}: {miss['node']}: {miss['message']}")
    print(compilation.ir("fuse_tir", function="main"))
    return agreement(compilation, model, digits)


def main() -> bool:
    """Runs the tour; whether all numbers were PyTorch's."""
    url = server_url(__doc__.splitlines()[0])
    digits = Digits.load()
    model = digits.train(mlp())
    with relaxd.Client(url) as client, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batch = torch.export.Dim("batch", min=1, max=4096)
        file = folder / "mlp.pt2"
        torch.export.save(torch.export.export(model, (digits.test_x,), dynamic_shapes=({0: batch},)), file)
        parts = [
            multiply_add(client, folder),
            dense_add(client, file, model, digits),
            limits(client, folder),
            composition(client, file, model, digits),
        ]
    return all(parts)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
