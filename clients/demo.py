"""The main job from end to end: train, export, serve, compile, look, predict.

A small MLP is trained on scikit-learn's handwritten digits (1797 images of 8 x 8 pixels), compiled by the `course`
recipe with every step checked against PyTorch, shown, and asked for the digits that it was not trained on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import relaxd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


def train() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The trained network, and the images (n, 64) float32 and labels (n,) int64 held out from the training."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=360, random_state=0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train_x), train_y).backward()
        optimizer.step()
    return model.eval(), test_x, test_y


@contextmanager
def server(data: Path) -> Iterator[str]:
    """A relaxd server on a free port; its URL."""
    # The only file that it gets is our own: the demo runs on a kernel without Landlock, too.
    command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data", str(data), "--allow-weak-sandbox"]
    with (data / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        for line in process.stdout or ():
            if line.startswith("relaxd listens on "):
                yield line.split()[-1]
                return
        raise SystemExit(f"the server did not start:\n{(data / 'server.log').read_text()}")
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def shown_on_failure(log: Path) -> Iterator[None]:
    """Shows the end of the server's log before it goes with its folder."""
    try:
        yield
    except Exception:
        if log.exists():
            print("The end of the server's log:", *log.read_text().splitlines()[-20:], sep="\n  ", file=sys.stderr)
        raise


def main() -> None:
    """Runs the tour; ends with exit code 1 when a prediction differs from PyTorch's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a running server (default: one is started)")
    parser.add_argument("--keep", type=Path, help="also write the exported model to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, shown_on_failure(Path(folder) / "server.log"):
        data = Path(folder)
        print("Training a 64-128-10 MLP on scikit-learn's digits ...", flush=True)
        model, images, labels = train()
        batch = torch.export.Dim("batch", min=1, max=4096)
        program = torch.export.export(model, (images,), dynamic_shapes=({0: batch},))
        exported = data / "digits.pt2"
        torch.export.save(program, exported)
        if arguments.keep:
            arguments.keep.write_bytes(exported.read_bytes())
        if arguments.url:
            differ = tour(arguments.url, exported, model, images, labels)
        else:
            print("Starting the server ...", flush=True)
            with server(data) as url:
                differ = tour(url, exported, model, images, labels)
    sys.exit(1 if differ else 0)


def tour(url: str, exported: Path, model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> int:
    """Compiles, shows and predicts; returns how many predictions differ from PyTorch's."""
    with relaxd.Client(url) as client:
        print(f"POST {url}/compile  ({exported.stat().st_size} bytes, recipe `course`, verify every step)\n")
        inputs = [{"name": "input", "shape": ["batch", 64], "dtype": "float32"}]
        compilation = client.compile(exported, passes="course", verify="every_step", inputs=inputs)
        print(compilation.table())
        for stage in ("fusion", "fuse_tir"):
            print(f"\n--- GET /ir/{stage} " + "-" * 60)
            print(compilation.ir(stage))
        predicted = compilation.infer(images.numpy())["output_0"].argmax(axis=1)
        with torch.no_grad():
            eager = model(images).argmax(dim=1).numpy()
        truth = labels.numpy()
        differ = int((predicted != eager).sum())
        print(f"--- POST /infer: {len(truth)} held-out digits " + "-" * 42)
        print(f"first ten   predicted {predicted[:10].tolist()}  true {truth[:10].tolist()}")
        print(f"accuracy    relaxd {np.mean(predicted == truth):.4f}   PyTorch eager {np.mean(eager == truth):.4f}")
        print(f"agreement   {len(truth) - differ} of {len(truth)} predictions equal eager's")
        print("\nThe same by hand: the README's next section, or `./dev serve` and clients/curl/tour.sh.")
    return differ


if __name__ == "__main__":
    main()
