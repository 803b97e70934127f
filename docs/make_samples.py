"""Writes the models that the explorer page offers (service/web/samples): trained here, in seconds, from scratch.

Run it from the checkout: ``.venv/bin/python docs/make_samples.py``. Their classes are small: the lines of their source
are what the page's model pane shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).parent.parent / "service/web/samples"
MOST_BYTES = 1_000_000
TEXT = "a compiler takes a program and gives a program that does the same in less time. " * 40


class DigitsMLP(nn.Module):  # type: ignore[misc]  # torch is Any by the settings of mypy
    """Two dense layers over 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 128)
        self.output = nn.Linear(128, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (batch, 10) of images (batch, 64), values from 0 to 1."""
        activated = torch.relu(self.hidden(pixels))
        logits: Tensor = self.output(activated)
        return logits


class LeNet(nn.Module):  # type: ignore[misc]  # torch is Any by the settings of mypy
    """LeNet-5 with ReLU and max pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.dense1 = nn.Linear(400, 120)
        self.dense2 = nn.Linear(120, 84)
        self.output = nn.Linear(84, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (1, 10) of an image (1, 1, 28, 28)."""
        maps = functional.max_pool2d(torch.relu(self.conv1(image)), 2)
        maps = functional.max_pool2d(torch.relu(self.conv2(maps)), 2)
        features = torch.relu(self.dense1(maps.flatten(1)))
        features = torch.relu(self.dense2(features))
        logits: Tensor = self.output(features)
        return logits


class Block(nn.Module):  # type: ignore[misc]  # torch is Any by the settings of mypy
    """A transformer block: attention over what came before, then a small network, each around a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        batch, length, width = x.shape
        query, key, value = self.query_key_value(self.norm1(x)).chunk(3, dim=-1)
        split = (batch, length, self.heads, width // self.heads)
        query, key, value = (part.reshape(split).transpose(1, 2) for part in (query, key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.shrink(functional.gelu(self.expand(self.norm2(x))))


class TinyTransformer(nn.Module):  # type: ignore[misc]  # torch is Any by the settings of mypy
    """Two blocks over characters."""

    def __init__(self, characters: int = 32, length: int = 32, width: int = 48) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (1, 32, 32) of the next character after each of `tokens` (1, 32) int64, from 0 to 31."""
        x = self.embed(tokens) + self.position
        x = self.blocks(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def train(model: nn.Module, steps: int, batch: Callable[[], tuple[Tensor, Tensor]]) -> float:
    """The loss after some steps of Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss = torch.zeros(())
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
    return float(loss)


def save(name: str, model: nn.Module, example: Tensor, dynamic: bool) -> int:
    """Writes one sample; its size in bytes."""
    shapes = ({0: torch.export.Dim("batch", min=1, max=4096)},) if dynamic else None
    # A clone: a view would bring all that it is a view of.
    program = torch.export.export(model.eval(), (example.clone(),), dynamic_shapes=shapes)
    file = FOLDER / f"{name}.pt2"
    torch.export.save(program, file)
    return file.stat().st_size


def main() -> None:
    """Trains and writes all three."""
    torch.manual_seed(0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    large = functional.interpolate(images.unsqueeze(1), (28, 28), mode="bilinear")
    characters = torch.tensor([ord(letter) % 32 for letter in TEXT])

    def some_digits(pixels: Tensor) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(labels), (256,))
        return pixels[chosen], labels[chosen]

    def some_text() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(characters) - 33, (32, 1)) + torch.arange(33)
        return characters[starts[:, :-1]], characters[starts[:, 1:]]

    mlp, lenet, transformer = DigitsMLP(), LeNet(), TinyTransformer()
    losses = [
        train(mlp, 300, lambda: some_digits(images.flatten(1))),
        train(lenet, 200, lambda: some_digits(large)),
        train(transformer, 200, some_text),
    ]
    total = save("digits-mlp", mlp, images[:4].flatten(1), dynamic=True)
    total += save("lenet", lenet, large[:1], dynamic=False)
    total += save("tiny-transformer", transformer, characters[:32].unsqueeze(0), dynamic=False)
    if total > MOST_BYTES:
        raise SystemExit(f"the samples have {total} bytes, more than {MOST_BYTES}")
    print(f"{total} bytes, losses {', '.join(f'{loss:.3f}' for loss in losses)}")  # noqa: T201


if __name__ == "__main__":
    main()
