"""Models for tests, exported by ``python -m tests.models NAME FILE``: small, seeded, each for one purpose."""

from __future__ import annotations

import sys

import torch
import torch.fx
from torch import nn

F32 = torch.float32


class TwoInputs(nn.Module):
    """Adds a (2, 3) float32 `left` and an int64 `right`, and multiplies: two inputs, two outputs."""

    def forward(self, left, right):
        return left + 1.0, right * 2


class Dynamic(nn.Module):
    """A dense layer over any batch."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 3)

    def forward(self, x):
        return self.dense(x)


class Deep(nn.Module):
    """Enough layers that a compile takes a while."""

    def __init__(self, layers: int = 150) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16 + i, 17 + i) for i in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Fma(nn.Module):
    """The lecture's y + x * y."""

    def forward(self, x, y):
        return y + x * y


class Scale(nn.Module):
    """x * 1e30 * 1e30: infinite where x is not 0, NaN at infinity times 0."""

    def forward(self, x):
        return torch.log(x)


class Negative(nn.Module):
    """x[:, -1]: TVM reads outside the tensor, so verification must refuse it."""

    def forward(self, x):
        return x[:, -1] + 0.0


class Counter(nn.Module):
    """Keeps state in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total.clone()


class Cholesky(nn.Module):
    """A decomposition of linear algebra, which nothing here converts."""

    def forward(self, x):
        return torch.linalg.cholesky(x)


class Inner(nn.Module):
    """A function that no importer has."""

    def forward(self, x):
        return torch.special.airy_ai(x)


class Unsupported(nn.Module):
    """Three calls of two operators that cannot be compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        x = torch.special.erfcx(x)
        return self.inner(torch.special.erfcx(x) + 1)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def make(name: str) -> tuple[nn.Module, tuple, dict | None]:
    """The module, its example inputs and its dynamic shapes."""
    torch.manual_seed(7)
    batch = torch.export.Dim("batch", min=1, max=64)
    mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    made = {
        "mlp": lambda: (mlp, (torch.randn(2, 8),), None),
        "lecture": lambda: (
            nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
            (torch.randn(1, 784),),
            None,
        ),
        "small_conv": lambda: (
            nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, groups=16),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(1600, 24),
            ),
            (torch.randn(1, 3, 12, 12),),
            None,
        ),
        "two_inputs": lambda: (TwoInputs(), (torch.randn(2, 3), torch.arange(4)), None),
        "dynamic": lambda: (Dynamic(), (torch.randn(3, 4),), {"x": {0: batch}}),
        "deep": lambda: (Deep(), (torch.randn(1, 16),), None),
        "fma": lambda: (Fma(), (torch.randn(4, 4), torch.randn(4, 4)), None),
        "log": lambda: (Scale(), (torch.rand(3) + 0.5,), None),
        "negative_index": lambda: (Negative(), (torch.randn(4, 5),), None),
        "counter": lambda: (Counter(), (torch.randn(3),), None),
        "unsupported": lambda: (Unsupported(), (torch.randn(3),), None),
        "gram": lambda: (
            Function(lambda x: x.transpose(0, 1) @ x),
            (torch.randn(3, 4),),
            {"x": {0: torch.export.Dim("batch", min=0, max=64)}},
        ),
        "empty_product": lambda: (Function(lambda x: x.prod(1)), (torch.randn(4, 0),), None),
        "empty_concat": lambda: (Function(lambda x: torch.cat([x, torch.ones(2, 3)])), (torch.randn(0, 3),), None),
        "total": lambda: (Function(lambda x: x.sum()), (torch.randn(3, 4),), None),
        "identity": lambda: (nn.Identity(), (torch.randn(3, 4),), None),
        "twice": lambda: (Function(lambda x: (x, x)), (torch.randn(3, 4),), None),
        "power_int8": lambda: (Function(lambda x: 2**x), (torch.arange(0, 8, dtype=torch.int8),), None),
        "rows": lambda: (nn.Embedding(5, 2), (torch.tensor([0, 1]),), None),
        "halves": lambda: (
            Function(lambda x: x.reshape(x.shape[0] // 2, 2).sum(1)),
            (torch.randn(8, 1),),
            {"x": {0: 2 * torch.export.Dim("h", min=2, max=50)}},
        ),
        "power_int16": lambda: (Function(lambda x: x ** x.abs()), (torch.arange(1, 5, dtype=torch.int16),), None),
        # TVM's lowering of so many operands recurses until the stack overflows.
        "wide_concat": lambda: (
            Function(lambda x: torch.tanh(torch.cat([torch.relu(x)] * 5000)).sum()),
            (torch.randn(2, 3),),
            None,
        ),
        "wide_dense": lambda: (Function(lambda x: torch.relu(x @ x) + 1.0), (torch.randn(192, 192),), None),
        "cholesky": lambda: (Cholesky(), (torch.eye(3),), None),
    }
    return made[name]()


def main(name: str, file: str, form: str = "pt2") -> None:
    """Exports one model as a `.pt2`, or saves it as ``traced``, ``scripted`` or ``fx``."""
    module, inputs, dynamic = make(name)
    module.eval()
    if form == "traced":
        torch.jit.save(torch.jit.trace(module, inputs), file)
    elif form == "scripted":
        torch.jit.save(torch.jit.script(module), file)
    elif form == "fx":
        torch.save(torch.fx.symbolic_trace(module), file)
    else:
        torch.export.save(torch.export.export(module, inputs, dynamic_shapes=dynamic), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
