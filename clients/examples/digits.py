"""The networks of the lectures, on real data: scikit-learn's handwritten digits."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import relaxd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


@dataclass(frozen=True)
class Digits:
    """1797 images of 8 x 8 pixels, (n, 64) float32 from 0 to 1, and what they show, in two parts."""

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor

    @classmethod
    def load(cls) -> Digits:
        digits = load_digits()
        images = torch.tensor(digits.data / 16, dtype=torch.float32)
        train_x, test_x, train_y, test_y = train_test_split(
            images, torch.tensor(digits.target), test_size=360, random_state=0
        )
        return cls(train_x, train_y, test_x, test_y)

    def train(self, model: nn.Module, steps: int = 200) -> nn.Module:
        """The model after some steps of Adam over all training images, ready to predict."""
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(self.train_x), self.train_y).backward()
            optimizer.step()
        return model.eval()


def mlp() -> nn.Module:
    """The lecture's network: two dense layers with a relu between them."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutional() -> nn.Module:
    """The network of the lecture's exercise: convolution, relu, pooling, two dense layers, log softmax."""
    torch.manual_seed(0)
    image = nn.Unflatten(1, (1, 8, 8))
    features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(image, features, nn.Linear(72, 32), nn.ReLU(), nn.Linear(32, 10), nn.LogSoftmax(dim=1))


def agreement(compilation: relaxd.Compilation, model: nn.Module, digits: Digits) -> bool:
    """Prints how the predictions compare; whether all are those of PyTorch."""
    (output,) = compilation.infer(digits.test_x.numpy()).values()
    with torch.no_grad():
        eager = model(digits.test_x).argmax(dim=1).numpy()
    same = int((output.argmax(axis=1) == eager).sum())
    right = float(np.mean(output.argmax(axis=1) == digits.test_y.numpy()))
    print(f"    {same} of {len(eager)} predictions are PyTorch's; {right:.4f} of them are right")
    return same == len(eager)


def export(model: nn.Module, inputs: tuple[torch.Tensor, ...], file: Path) -> Path:
    """The file, with the model as torch.export has it."""
    torch.export.save(torch.export.export(model.eval(), inputs), file)
    return file


def server_url(description: str) -> str:
    """The address of a running server, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000", help="a running server (./dev serve)")
    url: str = parser.parse_args().url
    return url


def heading(text: str) -> None:
    """A line above a part of the output."""
    print(f"\n--- {text} " + "-" * max(0, 100 - len(text)))
