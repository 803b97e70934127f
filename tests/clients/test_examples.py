"""The example scripts, both lectures, against a real server: they run to their end, and the numbers are PyTorch's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "clients" / "examples"

# What each must have shown, in this order.
SHOWN = {
    "integration.py": [
        "call_module",
        "import.ops = relax", "R.nn.relu", "360 of 360 predictions are PyTorch's",
        "import.ops = tensorir", "R.call_tir(dense", "360 of 360 predictions are PyTorch's",
        "def dense(",
        "the convolutional network", "R.nn.conv2d", "360 of 360 predictions are PyTorch's",
        "R.call_tir(conv2d", "360 of 360 predictions are PyTorch's",
        "cannot translate node 'gelu'",
    ],
    "fusion.py": [
        "R.ewise_fma(x, y, y)", "def ewise_fma(",
        "# fusion", "fused_dense_add0(", "# fuse_tir", "R.call_tir(fused_dense_add0", "360 of 360 predictions are PyTorch's",
        "fuse_dense_add             1 matmul in 4 kernels", "2 operators read it",
        "computed twice   2 matmul in 3 kernels", "generic fuse_ops           1 matmul in 1 kernels",
        "dense_relu matched at", "dense_relu nearly matched at", "must be read by nn.relu",
        "R.call_tir(dense_relu", "R.call_tir(fused_matmul", "360 of 360 predictions are PyTorch's",
    ],
}  # fmt: skip


@pytest.mark.parametrize("script", sorted(SHOWN))
def test_the_example_runs_to_its_end(server_url: str, script: str) -> None:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / script), server_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rest = done.stdout
    for text in SHOWN[script]:
        assert text in rest, f"{text!r} is missing after what was shown before:\n{done.stdout}"
        rest = rest[rest.index(text) + len(text) :]


def test_every_example_is_tried() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SHOWN, "digits.py"}
