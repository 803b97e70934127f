"""What checking indices at run time costs: the checks' own calls in a run of BERT-mini.

The model is compiled by the generic recipe as it is served, and every call that its virtual machine makes is timed:
`ROUNDS` runs, the minimum of each call's time counts. Two libraries, one without checks, differ by more than the checks
cost: the other kernels move in memory. The claim is at most 2 %, also of a library as fast as `FAST_MS`.
"""

from __future__ import annotations

import json
import time
from typing import Any

import torch
import tvm
from torch import nn
from tvm import relax

from bench.machine import describe
from tests.cases.programs import executable_of

ROUNDS = 20
FAST_MS = 5
CHECKS = ("indices_within", "relax.run.assert_op")


class BertMini(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """4 layers of width 256 and 4 heads over 128 tokens, with word, position and segment tables."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.segments = (
            nn.Embedding(30522, 256),
            nn.Embedding(512, 256),
            nn.Embedding(2, 256),
        )
        self.norm = nn.LayerNorm(256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, words: Any, segments: Any) -> Any:
        """words, segments: (1, 128) int64; gives (1, 128, 256)."""
        positions = torch.arange(words.shape[1])
        return self.layers(self.norm(self.words(words) + self.positions(positions) + self.segments(segments)))


def calls_of(executable: Any, inputs: list[Any]) -> dict[str, float]:
    """Seconds of each call of one run, by the callee's name: the minimum over the rounds of what all its calls took."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    run: dict[str, float] = {}
    started: dict[str, float] = {}

    def instrument(_function: Any, name: str, before: bool, _result: Any, *_arguments: Any) -> None:
        if before:
            started[name] = time.perf_counter()
        else:
            run[name] = run.get(name, 0.0) + time.perf_counter() - started[name]

    machine.set_instrument(instrument)
    tensors = [tvm.runtime.tensor(each.numpy()) for each in inputs]
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        run.clear()
        machine["main"](*tensors)
        for name, seconds in run.items():
            best[name] = min(best.get(name, seconds), seconds)
    return best


def main() -> None:
    """Prints what the checks take and their share, as JSON."""
    torch.manual_seed(0)
    model = BertMini().eval()
    args = (torch.randint(0, 30522, (1, 128)), torch.zeros(1, 128, dtype=torch.int64))
    calls = calls_of(executable_of(model, args), list(args))
    checks_ms = sum(value for name, value in calls.items() if name.startswith(CHECKS)) * 1e3
    total_ms = sum(calls.values()) * 1e3
    figures = {
        "checks_ms": round(checks_ms, 4),
        "total_ms": round(total_ms, 2),
        "cost_percent": round(checks_ms / total_ms * 100, 4),
        f"cost_percent_of_{FAST_MS}_ms": round(checks_ms / FAST_MS * 100, 2),
    }
    print(json.dumps({**figures, "machine": describe()}, indent=1))


if __name__ == "__main__":
    main()
