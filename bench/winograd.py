"""3 x 3 convolutions by the kernel `winograd` beside the direct one and PyTorch's: time and rounding, layer by layer.

Every kernel runs alone on one thread, in turn with the others; the minimum of `ROUNDS` counts. An error is the largest
absolute one against PyTorch with float64, for inputs of variance 1 and results of about the same. `usual points` is the
4 x 4 transform with the points 0, ±1 and ±2 that most libraries have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
import tvm

from bench.machine import describe
from service.compiler.schedules import convolution, winograd
from service.compiler.schedules.expressions import Unsupported
from service.compiler.schedules.vector_unit import vector_unit
from service.compiler.schedules.winograd_transforms import TRANSFORMS, transform
from service.compiler.target import tvm_target
from service.nouns import Target
from tests.compiler.schedules.kernels import compiled, scheduled
from tests.compiler.schedules.test_convolution import convolved

ROUNDS = 40
# Input channels, output channels and the side of the image: layers of ResNet-18 at 224 and of U-Nets.
LAYERS = ((64, 64, 56), (128, 128, 28), (256, 256, 14), (32, 32, 128), (64, 64, 64), (128, 128, 32))
USUAL = transform([Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2)])


def runner(kernel: Any, x: Any, w: Any, out: tuple[int, ...]) -> Callable[[], Any]:
    """What runs the kernel and gives its result."""
    position, packing = next(iter(kernel.packings.items()))
    operands = [packing(each) if index == position else each for index, each in enumerate((x, w))]
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(each)) for each in (*operands, np.zeros(out, "float32"))]
    function = compiled(kernel.function)["main"]

    def run() -> Any:
        function(*tensors)
        return tensors[-1].numpy()

    return run


def candidates(x: Any, w: Any, unit: str) -> dict[str, Callable[[], Any]]:
    """The kernels for one layer, and PyTorch eager."""
    tensors, out = convolved(x.shape, w.shape, 1, 1, 1)  # type: ignore[no-untyped-call]  # of the tests
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    found = {"direct": runner(scheduled(convolution.schedule, tensors, {1: w}, unit), last, w, out)}
    ours = TRANSFORMS[4]
    for name, results, points in (("2 x 2", 2, ours), ("4 x 4", 4, ours), ("4 x 4, usual points", 4, USUAL)):
        TRANSFORMS[4] = points
        try:
            choices = scheduled(winograd.schedule, tensors, {1: w}, unit).candidates
            choice = next(each for each in choices if each["results"] == results)
            found[name] = runner(scheduled(winograd.schedule, tensors, {1: w}, unit, choice), last, w, out)
        except Unsupported as reason:
            print(f"{name}: {reason}")
        finally:
            TRANSFORMS[4] = ours
    image = torch.from_numpy(x).to(memory_format=torch.channels_last)
    weight = torch.from_numpy(w).to(memory_format=torch.channels_last)
    found["eager"] = lambda: torch.nn.functional.relu(torch.nn.functional.conv2d(image, weight, padding=1)).permute(
        0, 2, 3, 1
    )
    return found


def measure(inputs: int, outputs: int, side: int, unit: str) -> dict[str, dict[str, float]]:
    """Milliseconds and the error of every candidate."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((1, inputs, side, side)).astype("float32")
    w = (generator.standard_normal((outputs, inputs, 3, 3)) / np.sqrt(9 * inputs)).astype("float32")
    exact = torch.nn.functional.conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), padding=1)
    expected = exact.relu().permute(0, 2, 3, 1).numpy()
    runs = candidates(x, w, unit)
    errors = {name: float(np.abs(np.asarray(run()) - expected).max()) for name, run in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: {"ms": best[name] * 1e3, "error": errors[name]} for name in runs}


def main() -> None:
    """Prints a line for every layer and candidate, and all as JSON."""
    torch.set_num_threads(1)
    unit = vector_unit(tvm_target(Target(threads=1))).name
    result: dict[str, Any] = {"machine": describe(), "vector_unit": unit, "layers": {}}
    for layer in LAYERS:
        rows = result["layers"][str(layer)] = measure(*layer, unit)
        for name, row in rows.items():
            ratio = row["ms"] / rows["direct"]["ms"]
            print(
                f"{layer!s:18} {name:20} {row['ms']:7.3f} ms {ratio:5.2f} of direct, error {row['error']:.1e}",
                flush=True,
            )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
