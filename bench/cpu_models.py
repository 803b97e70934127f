"""The models of the CPU benchmark: seeded modules and example inputs, by name. Needs torch alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests import zoo


def _mlp(batch: int, *widths: int) -> zoo.Made:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), (torch.randn(batch, widths[0]),)


def _image(size: int, batch: int = 1, channels: int = 3) -> tuple[Any, ...]:
    return (torch.randn(batch, channels, size, size),)


def _bert() -> zoo.Made:
    """BERT-mini's sizes: 4 layers of 256, over 128 tokens."""
    model = zoo.Bert(256, 4)
    model.positions = nn.Embedding(128, 256)
    ids = torch.randint(0, 1000, (1, 128))
    return model, (ids, torch.zeros_like(ids), torch.ones_like(ids))


def _vit() -> zoo.Made:
    """ViT-tiny: 12 layers of 192 with 3 heads, over patches of 16."""
    model = zoo.ViT(192, 12)
    model.patch = nn.Conv2d(3, 192, 16, 16)
    model.position = nn.Parameter(torch.randn(1, 197, 192) * 0.02)
    model.encoder = nn.ModuleList(
        nn.TransformerEncoderLayer(192, 3, 768, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(12)
    )
    return model, _image(224)


def _gpt() -> zoo.Made:
    """A step of a small decoder over 32 tokens."""
    model = zoo.Gpt(256, 4)
    model.places = nn.Embedding(64, 256)
    return model, (torch.randint(0, 500, (1, 32)),)


def _tagger() -> zoo.Made:
    """Two layers of LSTM in both directions, 64 wide, over 32 tokens."""
    model = zoo.Tagger(nn.LSTM)
    model.words, model.network = nn.Embedding(200, 64), nn.LSTM(64, 64, 2, batch_first=True, bidirectional=True)
    model.head = nn.Linear(128, 7)
    return model, (torch.randint(0, 200, (1, 32)),)


MODELS: dict[str, Callable[[], zoo.Made]] = {
    "mlp 784-128-10": lambda: _mlp(1, 784, 128, 10),
    "mlp 784-128-10 x32": lambda: _mlp(32, 784, 128, 10),
    "mlp 1024-4096-4096-1000": lambda: _mlp(1, 1024, 4096, 4096, 1000),
    "mlp 1024-4096-4096-1000 x32": lambda: _mlp(32, 1024, 4096, 4096, 1000),
    "gemm 1024": lambda: _mlp(1024, 1024, 1024),
    "gemv 4096": lambda: _mlp(1, 4096, 4096),
    "lenet": lambda: (zoo.LeNet(), _image(28, 1, 1)),
    "lenet x32": lambda: (zoo.LeNet(), _image(28, 32, 1)),
    "resnet18 224": lambda: (zoo.resnet18(), _image(224)),
    "mobilenet_v2 224": lambda: (zoo.mobilenet_v2(), _image(224)),
    "unet 128": lambda: (zoo.UNet(), _image(128)),
    "bert-mini 128": _bert,
    "vit-tiny 224": _vit,
    "gpt step 32": _gpt,
    "lstm tagger 32": _tagger,
}


def make(name: str, seed: int = 11) -> zoo.Made:
    """The module, seeded and with BatchNorm statistics that are not trivial, and its example inputs."""
    torch.manual_seed(seed)
    module, inputs = MODELS[name]()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 1.5)
    return module.eval(), inputs
