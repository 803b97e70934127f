"""Architectures that people really compile, with random weights, small enough for tests: ``make(name)``.

Written after the papers that describe them; widths and depths of the published forms where that is affordable, else
reduced in number of layers, never in the kinds of operators.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

Made = tuple[nn.Module, tuple[Any, ...]]


class LeNet(nn.Module):
    """LeCun et al. 1998, with max pooling and ReLU as it is taught today."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class BasicBlock(nn.Module):
    """He et al. 2015."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18() -> nn.Module:
    """ResNet-18."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(width, outputs, stride), BasicBlock(outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class InvertedResidual(nn.Module):
    """Sandler et al. 2018."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
        ]
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


def mobilenet_v2() -> nn.Module:
    """MobileNetV2, width 1, with one block of each group where the published one has up to four."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    width = 32
    for expand, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2), (6, 64, 2, 2), (6, 96, 1, 1), (6, 160, 2, 2), (6, 320, 1, 1)
    ):  # fmt: skip
        for index in range(count):
            layers.append(InvertedResidual(width, outputs, stride if index == 0 else 1, expand))
            width = outputs
    layers += [nn.Conv2d(width, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))


def _double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Ronneberger et al. 2015, three levels; one way up by transposed convolution, one by bilinear resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = _double_conv(3, 16), _double_conv(16, 32), _double_conv(32, 64)
        self.up2 = nn.ConvTranspose2d(64, 32, 2, 2)
        self.merge2, self.merge1 = _double_conv(64, 32), _double_conv(48, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.merge1(torch.cat([up, a], 1)))


class ViT(nn.Module):
    """Dosovitskiy et al. 2020, by PyTorch's own encoder layers."""

    def __init__(self, width: int = 96, depth: int = 3) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, width * 2, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        for layer in self.encoder:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class SelfAttention(nn.Module):
    """Multi-head attention by scaled_dot_product_attention."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class BertLayer(nn.Module):
    """Devlin et al. 2018: post-norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.norm1, self.norm2 = (
            SelfAttention(width, 4, causal=False),
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.outer(F.gelu(self.inner(x))))


class Bert(nn.Module):
    """Token, position and segment embeddings, a padding mask, layers, and a pooled answer beside the sequence."""

    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.words, self.positions, self.segments = (
            nn.Embedding(1000, width),
            nn.Embedding(64, width),
            nn.Embedding(2, width),
        )
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(BertLayer(width) for _ in range(depth))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids, segments, mask):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(places) + self.segments(segments))
        keep = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, keep)
        return {"sequence": x, "pooled": torch.tanh(self.pooler(x[:, 0]))}


class Gpt(nn.Module):
    """Radford et al. 2019: pre-norm, causal, tied weights; one step gives the logits of the last place."""

    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(500, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(width), SelfAttention(width, 4, causal=True), nn.LayerNorm(width),
                           nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))])
            for _ in range(depth)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 500, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for norm1, attention, norm2, inner in self.blocks:
            x = x + attention(norm1(x))
            x = x + inner(norm2(x))
        return self.head(self.norm(x[:, -1]))


class Tagger(nn.Module):
    """A sequence tagger: embedding, a recurrent network in both directions, a dense layer for each place."""

    def __init__(self, kind: type[nn.Module], layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(200, 24)
        self.network = kind(24, 16, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 7)

    def forward(self, ids):
        return self.head(self.network(self.words(ids))[0])


class ConvNeXtBlock(nn.Module):
    """Liu et al. 2022: depthwise 7 x 7, LayerNorm over channels, two pointwise layers, a learnt scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, 1e-6)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.outer(F.gelu(self.inner(y)))).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """A ConvNeXt of one stage."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 4), nn.GroupNorm(1, 32), ConvNeXtBlock(32), ConvNeXtBlock(32), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


class Dlrm(nn.Module):
    """Naumov et al. 2019: embedding bags for the categories, a dense tower, pairwise products, a top tower."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(size, 8, mode="sum") for size in (50, 20, 30))
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, categories):
        x = self.bottom(dense)
        parts = [x] + [bag(categories[:, index]) for index, bag in enumerate(self.bags)]
        stacked = torch.stack(parts, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, offset=-1)
        return torch.sigmoid(self.top(torch.cat([x, products[:, rows, columns]], 1)))


class Einsum(nn.Module):
    """Linear attention in index notation."""

    def forward(self, q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        context = torch.einsum("bhld,bhle->bhde", k, v)
        scale = 1 / torch.einsum("bhld,bhd->bhl", q, k.sum(2))
        return torch.einsum("bhld,bhde,bhl->bhle", q, context, scale)


class DiffusionBlock(nn.Module):
    """A residual block of a diffusion U-Net: GroupNorm, SiLU, a time embedding, and attention over the pixels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(8, width) for _ in range(3))
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(width, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x, step):
        half = self.time.in_features // 2
        angles = step[:, None].float() * torch.exp(torch.arange(half) * (-math.log(10000.0) / half))
        time = self.time(F.silu(torch.cat([angles.sin(), angles.cos()], -1)))
        y = self.conv1(F.silu(self.norm1(x))) + time[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(y)))
        batch, width, height, length = x.shape
        flat = self.norm3(x).reshape(batch, width, height * length).transpose(1, 2)
        y, _ = self.attention(flat, flat, flat, need_weights=False)
        return x + y.transpose(1, 2).reshape(x.shape)


def _image(size: int, channels: int = 3) -> torch.Tensor:
    return torch.randn(1, channels, size, size)


ZOO: dict[str, Callable[[], Made]] = {
    "lenet": lambda: (LeNet(), (_image(28, 1),)),
    "resnet18": lambda: (resnet18(), (_image(64),)),
    "mobilenet_v2": lambda: (mobilenet_v2(), (_image(64),)),
    "unet": lambda: (UNet(), (_image(32),)),
    "vit": lambda: (ViT(), (_image(32),)),
    "bert": lambda: (Bert(), (torch.randint(0, 1000, (2, 12)), torch.zeros(2, 12, dtype=torch.int64), torch.tensor([[1] * 12, [1] * 7 + [0] * 5]))),
    "gpt": lambda: (Gpt(), (torch.randint(0, 500, (1, 16)),)),
    "lstm_tagger": lambda: (Tagger(nn.LSTM), (torch.randint(0, 200, (2, 9)),)),
    "gru_tagger": lambda: (Tagger(nn.GRU), (torch.randint(0, 200, (2, 9)),)),
    "convnext": lambda: (convnext(), (_image(32),)),
    "dlrm": lambda: (Dlrm(), (torch.randn(4, 13), torch.randint(0, 20, (4, 3, 5)))),
    "einsum": lambda: (Einsum(), tuple(torch.randn(1, 2, 6, 4) for _ in range(3))),
    "diffusion_block": lambda: (DiffusionBlock(), (_image(8, 32), torch.tensor([17]))),
}  # fmt: skip


def make(name: str) -> Made:
    """The module, seeded and with BatchNorm statistics that are not trivial, and its example inputs."""
    torch.manual_seed(11)
    module, inputs = ZOO[name]()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 1.5)
    return module.eval(), inputs


def main(name: str, file: str, answers: str) -> None:
    """Exports one model, and writes three sets of inputs with eager's answers."""
    module, examples = make(name)
    torch.export.save(torch.export.export(module, examples), file)
    arrays: dict[str, Any] = {}
    for case in range(3):
        inputs = [value if not value.is_floating_point() else torch.randn_like(value) for value in examples]
        inputs = [
            value if value.is_floating_point() else value.flatten()[torch.randperm(value.numel())].view_as(value)
            for value in inputs
        ]
        with torch.no_grad():
            result = module(*inputs)
        outputs = list(result.values()) if isinstance(result, dict) else [result]
        arrays |= {f"{case}_in_{index}": value.numpy() for index, value in enumerate(inputs)}
        arrays |= {f"{case}_out_{index}": value.numpy() for index, value in enumerate(outputs)}
    np.savez(answers, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
