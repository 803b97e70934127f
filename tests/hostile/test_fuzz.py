"""Mutated files: every one is loaded or refused with a Problem. Nothing else, no hang, no crash, no effect.

It runs 30 s in all; ``RELAXD_FUZZ_SECONDS`` gives each format longer, ``RELAXD_FUZZ_SEED`` other mutations.
"""

from __future__ import annotations

import io
import os
import random
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.fx
from torch import nn

from tests.hostile import fx_files, pt2_files, script_files
from tests.hostile.mutations import mutate

ROOT = Path(__file__).parents[2]
SECONDS = float(os.environ.get("RELAXD_FUZZ_SECONDS", "10"))
SEED = int(os.environ.get("RELAXD_FUZZ_SEED", "1"))
ANSWER_S = 20.0


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(4, 5, num_layers=2)
        self.mha = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        attended = self.mha(x, x, x)[0]
        return self.cell(attended)[0][:, -1]


def traced() -> bytes:
    out = io.BytesIO()
    torch.jit.save(torch.jit.trace(nn.Sequential(nn.Linear(4, 3), nn.Tanh()).eval(), torch.ones(2, 4)), out)
    return out.getvalue()


def saved_graph() -> bytes:
    out = io.BytesIO()
    torch.save(torch.fx.symbolic_trace(Sequence().eval()), out)
    return out.getvalue()


def honest(model_format: str) -> tuple[list[bytes], str]:
    """Files to start from, and the name of their input."""
    if model_format == "exported_program":
        return [pt2_files.pack(pt2_files.honest_files())], "-"
    if model_format == "torchscript":
        return [script_files.pack(script_files.honest_files()), traced()], "input"
    return [fx_files.saved(), saved_graph()], "x"


class Trial:
    """A process that loads files and may die of it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.trial"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )

    def ask(self, line: str, seconds: float) -> str:
        """Its answer, or what happened instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return "hang"
        answer = self.process.stdout.readline().strip()
        return answer or f"crash: {self.process.wait()}"

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def trial() -> Iterator[Trial]:
    process = Trial()
    yield process
    process.close()


@pytest.mark.parametrize("model_format", ["exported_program", "torchscript", "fx"])
def test_mutated_files_are_loaded_or_refused(model_format: str, trial: Trial, tmp_path: Path) -> None:
    starts, name = honest(model_format)
    path = tmp_path / "upload"
    path.write_bytes(starts[0])
    # The first answer includes the import of torch.
    assert trial.ask(f"{model_format} {path} {tmp_path} {name}", 120.0) == "loaded"
    kept = sorted(entry.name for entry in tmp_path.iterdir())
    end = time.monotonic() + SECONDS
    outcomes: Counter[str] = Counter()
    number = 0
    while time.monotonic() < end:
        rng = random.Random(f"{SEED}-{model_format}-{number}")
        path.write_bytes(mutate(rng.choice(starts), rng))
        answer = trial.ask(f"{model_format} {path} {tmp_path} {name}", ANSWER_S)
        outcomes[answer] += 1
        assert answer in ("loaded", "refused"), f"mutation {number} of seed {SEED}: {answer}"
        number += 1
    sys.stderr.write(f"\n{model_format}: {dict(outcomes)}\n")
    assert outcomes["refused"] > 10
    assert sorted(entry.name for entry in tmp_path.iterdir()) == kept
