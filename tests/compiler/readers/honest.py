"""Honest models for the readers' tests, each for one thing that a too strict reader would refuse or change."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Point = collections.namedtuple("Point", "x y")


@dataclass
class Honest:
    """A module with what it takes to export and to call it."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic: Any = None


class Calls(nn.Module):
    """A module whose forward is a function, with the given tensors as buffers."""

    def __init__(self, function: Callable[..., Any], **tensors: Any) -> None:
        super().__init__()
        self.function = function
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class Named(nn.Module):
    """Names that are Python builtins or look odd, an optional input, a keyword input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"a-b": nn.Linear(4, 4), "0": nn.Linear(4, 4)})

    def forward(self, input: Any, mask: Any = None, *, scale: Any) -> Any:
        x = self.layers["a-b"](input)
        x = self.layers["0"](x) * scale
        return {"out": x if mask is None else x * mask, "none": None, "twice": [x, x]}


class Nested(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        x, (y, z) = a["x"], a["rest"]
        return {"sum": x + y, "parts": (z * b[0], [b[1] - x, x])}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.out = nn.Linear(6, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Any) -> Any:
        return self.out(self.embed(tokens))


class Branches(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


class Constant(nn.Module):
    """A plain tensor attribute, views of one storage, an expanded buffer."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.arange(12.0)
        self.table = whole[:6].reshape(2, 3)
        self.register_buffer("tail", whole[6:].reshape(3, 2).t())
        self.register_buffer("wide", torch.ones(1).expand(2, 3))
        self.register_buffer("scratch", torch.full((2, 3), 2.0), persistent=False)

    def forward(self, x: Any) -> Any:
        return x * self.table + self.tail + self.wide * self.scratch


class Tagger(nn.Module):
    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.cell = cell(5, 7, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(14, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.cell(x)[0])


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        y, weights = self.mha(x, x, x)
        return self.norm(x + y), weights


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
    )


def make() -> dict[str, Honest]:
    """All of them by name, with seeded weights."""
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=64)
    x, tokens = torch.randn(3, 4), torch.tensor([[1, 2, 9]])
    mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    half = Calls(lambda m, x: (x @ m.w, m.b + x.sum()), w=nn.Parameter(torch.randn(4, 4)), b=torch.randn(2))
    integers = Calls(
        lambda m, x: (x + m.i, torch.where(m.mask, x, -x)), i=torch.arange(4), mask=torch.tensor([True, False] * 2)
    )
    point = Calls(lambda m, p: Point(p.x + p.y, p.x * p.y))
    return {
        "mlp": Honest(mlp, (x,)),
        "convnet": Honest(convnet(), (torch.randn(2, 1, 8, 8),)),
        "einsum": Honest(Calls(lambda m, a, b: torch.einsum("bi,bj->bij", a, b)), (x, x)),
        "none_input": Honest(Named(), (x, None), {"scale": torch.tensor(2.0)}),
        "mask_input": Honest(Named(), (x, torch.ones(4)), {"scale": torch.tensor(2.0)}),
        "cond": Honest(Branches(), (x,)),
        "nested": Honest(Nested(), ({"x": x, "rest": (x + 1, x * 2)}, [torch.ones(4), x])),
        "tied": Honest(Tied(), (tokens,)),
        "dynamic": Honest(nn.Linear(4, 2), (x,), dynamic={"input": {0: batch}}),
        "dynamic_sizes": Honest(
            Calls(lambda m, a: (a.reshape(a.shape[0] * 2, -1), a.sum(0) / a.shape[0])),
            (x,),
            dynamic={"args": ({0: batch},)},
        ),
        "constants": Honest(Constant(), (torch.randn(2, 3),)),
        "integers": Honest(integers, (torch.tensor([5, -6, 7, 8]),)),
        "float16": Honest(half.half(), (x.half(),)),
        "bfloat16": Honest(nn.Linear(4, 3).bfloat16(), (x.bfloat16(),)),
        "float64": Honest(nn.Linear(4, 3).double(), (x.double(),)),
        "infinity": Honest(Calls(lambda m, x: x.masked_fill(x > 0, float("-inf"))), (x,)),
        "lstm": Honest(Tagger(nn.LSTM), (torch.randn(2, 6, 5),)),
        "gru": Honest(Tagger(nn.GRU), (torch.randn(2, 6, 5),)),
        "attention": Honest(Attends(), (torch.randn(2, 5, 8),)),
        "named_tuple": Honest(point, (Point(x, x + 1),)),
        "scalar": Honest(Calls(lambda m, x: (x.sum(), torch.tensor(3), x.new_zeros(0, 2))), (x,)),
        "aliases": Honest(Calls(lambda m, x: (x, x, m.c), c=torch.ones(2)), (x,)),
        "embedding_bag": Honest(nn.EmbeddingBag(10, 3, mode="sum"), (tokens,)),
        "autocast": Honest(Calls(_without_gradients), (x,)),
    }


def _without_gradients(module: nn.Module, x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return y + x
