"""FX files: rebuilt of PyTorch's layers and functions, with the same answers bit by bit."""

from __future__ import annotations

import math
import operator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as F  # noqa: N812  as everybody calls it
from torch import nn

from service.compiler.importers.fx import load_program
from service.compiler.readers.fx_code import read_forward
from service.errors import ImportFailed, SignatureMismatch
from service.nouns import ModelFormat, TensorSpec
from tests.compiler.importers.test_torchscript import convnet
from tests.compiler.readers.test_pt2 import job_of, same


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Dropout()))
        self.mha = nn.MultiheadAttention(4, 2, batch_first=True)
        self.lstm = nn.LSTM(4, 5, num_layers=2, bidirectional=True)
        self.gru = nn.GRU(4, 5, batch_first=True)
        self.register_buffer("shift", torch.arange(4.0))
        self.weight = nn.Parameter(torch.full((4,), 0.5))
        self.constant = torch.ones(4)

    def forward(self, x, mask=None):
        a, _ = self.mha(x, x, x)
        y, (h, _) = self.lstm(a)
        z = self.layers(x) + self.shift * self.weight - self.constant
        z = z.view(z.shape[0], -1)[:, 1:].to(torch.float64)
        z += 1
        padded = F.pad(z, (1, 1), value=float("inf"))
        return {"a": padded, "b": (y.mean(), [-h, self.gru(x)[0]])}


class Operators(nn.Module):
    def forward(self, x):
        return (
            operator.add(x, 1), x // 2, x % 2, x**2, -x, x @ x.T, x[..., None, 1:], x[0], x[:, -1], x > 0, x * math.pi,
            x.sum(dim=-1, keepdim=True), torch.zeros(2, 3, dtype=torch.int64), x.new_zeros(2), torch.arange(3),
            x.masked_fill(x > 0, float("-inf")), torch.stack([x, x]), x.split(2, 1), torch.einsum("ab,cb->ac", x, x),
        )  # fmt: skip


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.embed = nn.GroupNorm(2, 8), nn.Embedding(9, 8)
        self.up = nn.ConvTranspose1d(8, 8, 2)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)

    def forward(self, tokens):
        x = self.up(self.norm(self.encoder(self.embed(tokens)).transpose(1, 2)))
        y = F.interpolate(x, scale_factor=2, mode="linear", align_corners=False)
        return (
            F.gelu(x), F.max_pool1d(x, 2), F.softmax(x, -1), torch.where(x > 0, x, x * 0.1), x.std(-1), x.mean((1, 2)),
            torch.cat([y, y], 2).clamp(-1, 1), F.scaled_dot_product_attention(x, x, x), F.layer_norm(x, (x.size(-1),)),
        )  # fmt: skip


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.out = nn.Linear(6, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.embed(tokens))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)
        self.bag = nn.EmbeddingBag(5, 4)

    def forward(self, x, tokens):
        h, c = self.cell(x)
        return self.cell(h, (h, c))[0] + self.bag(tokens)


HALF = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])
HONEST: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "everything": (Everything, (torch.randn(3, 4, 4),)),
    "operators": (Operators, (torch.randn(3, 4),)),
    "functions": (Functions, (TOKENS,)),
    "tied": (Tied, (TOKENS,)),
    "cells": (Cell, (torch.randn(2, 4), TOKENS % 5)),
    "convnet": (convnet, (torch.randn(2, 1, 8, 8),)),
    "float16": (HALF.half, (torch.randn(2, 4).half(),)),
    "bfloat16": (lambda: nn.Sequential(nn.Linear(4, 4)).bfloat16(), (torch.randn(2, 4).bfloat16(),)),
    "norms": (lambda: nn.Sequential(nn.BatchNorm1d(4), nn.LayerNorm(4), nn.PReLU(), nn.Softmax(-1)), (torch.randn(2, 4),)),
}  # fmt: skip


def save(module: nn.Module, path: Path) -> list[str]:
    graph = torch.fx.symbolic_trace(module.eval())
    torch.save(graph, path)
    return [str(node.target) for node in graph.graph.nodes if node.op == "placeholder"]


def load(folder: Path, names: list[str], inputs: tuple[torch.Tensor, ...] | None, batch: bool = False) -> Any:
    declared = None
    if inputs is not None:
        declared = tuple(
            TensorSpec(name, ("batch", *value.shape[1:]) if batch else tuple(value.shape), str(value.dtype)[6:])
            for name, value in zip(names, inputs, strict=False)
        )
    return load_program(job_of(folder / "m.pt", folder, ModelFormat.FX, inputs=declared))


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_graph_gives_the_same_bits(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    make, inputs = HONEST[name]
    module = make()
    names = save(module, tmp_path / "m.pt")
    program = load(tmp_path, names, inputs)
    assert same(program.module()(*inputs), module(*inputs))


@pytest.mark.parametrize("name", ["functions", "convnet", "cells", "tied"])
def test_a_batch_may_be_a_symbol(tmp_path: Path, name: str) -> None:
    make, inputs = HONEST[name]
    module = make()
    program = load(tmp_path, save(module, tmp_path / "m.pt"), inputs, batch=True)
    larger = tuple(torch.cat([value, value, value]) for value in inputs)
    torch.testing.assert_close(program.module()(*larger), module(*larger))


def test_modules_keep_their_paths(tmp_path: Path) -> None:
    program = load(tmp_path, save(convnet(), tmp_path / "m.pt"), HONEST["convnet"][1])
    assert {"0.weight", "1.running_mean", "5.bias"} <= set(program.state_dict)


def test_missing_inputs_name_the_forwards_parameters(tmp_path: Path) -> None:
    names = save(Cell(), tmp_path / "m.pt")
    with pytest.raises(SignatureMismatch) as caught:
        load(tmp_path, names, None)
    assert caught.value.extensions["expected"] == ["x", "tokens"]


class Own(nn.Module):
    def forward(self, x):
        return x


class Keeps(torch.fx.Tracer):
    def is_leaf_module(self, module, name):
        return True


def test_a_layer_of_the_users_own_is_named(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4), Own())
    graph = torch.fx.GraphModule(module, Keeps().trace(module))
    torch.save(graph, tmp_path / "m.pt")
    with pytest.raises(ImportFailed, match=r"test_fx\.Own") as caught:
        load(tmp_path, ["input"], (torch.randn(2, 4),))
    assert caught.value.extensions["source_line"].startswith("forward:")


class KeepsGraphs(torch.fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, torch.fx.GraphModule) or super().is_leaf_module(module, name)


class Nests(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU())))
        self.b = nn.ModuleDict({"x": self.a, "y": nn.ModuleList([nn.LayerNorm(4)])})
        self.scale = 2.5

    def forward(self, x):
        return self.b["y"][0](self.b["x"](self.a(x))) * self.scale


def test_a_graph_module_may_call_another(tmp_path: Path) -> None:
    module = Nests().eval()
    graph = torch.fx.GraphModule(module, KeepsGraphs().trace(module))
    assert any(isinstance(layer, torch.fx.GraphModule) for layer in graph.children())
    torch.save(graph, tmp_path / "m.pt")
    x = torch.randn(2, 4)
    assert same(load(tmp_path, ["x"], (x,)).module()(x), module(x))


def test_an_operator_that_is_not_known_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=r"torch\.special\.unheard_of \(1\)") as caught:
        read_forward("def forward(self, x):\n    y = torch.special.unheard_of(x)\n    return y", "import torch")
    assert caught.value.extensions["unsupported"][0]["source_line"].startswith("forward:2:")


def test_shapes_that_the_model_cannot_take_are_told_with_its_line(tmp_path: Path) -> None:
    save(nn.Sequential(nn.Linear(4, 4)), tmp_path / "m.pt")
    with pytest.raises(ImportFailed) as caught:
        load(tmp_path, ["input"], (torch.randn(2, 5),))
    assert caught.value.extensions["source_line"].startswith("forward:")
