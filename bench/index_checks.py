"""What checking indices at run time costs: BERT-mini with and without the checks, calls interleaved.

The model is compiled twice by the generic recipe, once as it is served and once with the checks left out of the module;
`ROUNDS` rounds of `CALLS` calls each, the minimum of wall time per call counts. The claim is at most 2 %.
"""

from __future__ import annotations

import json
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from bench.machine import describe
from service.compiler.translation import Translation
from service.runtime.session import Session
from tests.cases.programs import session_of

ROUNDS, CALLS = 30, 5


class BertMini(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """4 layers of width 256 and 4 heads over 128 tokens, with word, position and segment tables."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.segments = nn.Embedding(30522, 256), nn.Embedding(512, 256), nn.Embedding(2, 256)
        self.norm = nn.LayerNorm(256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, words: Any, segments: Any) -> Any:
        """words, segments: (1, 128) int64; gives (1, 128, 256)."""
        positions = torch.arange(words.shape[1])
        return self.layers(self.norm(self.words(words) + self.positions(positions) + self.segments(segments)))


def seconds_a_call(session: Session, inputs: list[np.ndarray[Any, Any]]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        session.run(inputs)
    return (time.perf_counter() - start) / CALLS


def main() -> None:
    """Prints the two times and their ratio as JSON."""
    torch.manual_seed(0)
    model = BertMini().eval()
    args = (torch.randint(0, 30522, (1, 128)), torch.zeros(1, 128, dtype=torch.int64))
    inputs = [each.numpy() for each in args]
    checked = session_of(model, args)
    with patch.object(Translation, "check", lambda *_: None):
        unchecked = session_of(model, args)
    best = {"checked": float("inf"), "unchecked": float("inf")}
    for _ in range(ROUNDS):
        for name, session in (("checked", checked), ("unchecked", unchecked)):
            best[name] = min(best[name], seconds_a_call(session, inputs))
    figures = {f"{name}_ms": round(value * 1e3, 3) for name, value in best.items()}
    cost = round((best["checked"] / best["unchecked"] - 1) * 100, 2)
    print(json.dumps({**figures, "cost_percent": cost, "machine": describe()}, indent=1))


if __name__ == "__main__":
    main()
