"""``python -m tests.hostile.gates_off``: hostile files straight into PyTorch's own loaders, in the sandbox alone.

It reads ``FORMAT FOLDER`` a line; FOLDER has the file as ``model``. Each is loaded and called in a process of its own that
was forked as a zygote forks its workers, and has confined itself as a compile worker. It answers one line of JSON for each.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.export.pt2_archive._package

from service.nouns import Confinement
from service.worker.sandbox import confine, missing
from tests.hostile.battery import wait

MEMORY_BYTES, CPU_S, FILE_BYTES = 1 << 30, 1, 64 << 20


def load(model_format: str) -> Any:
    """As everybody else loads it: whatever the file asks for is done."""
    if model_format == "torchscript":
        return torch.jit.load("model")
    if model_format == "fx":
        return torch.load("model", weights_only=False)
    with open("model", "rb") as file:
        return torch.export.load(file).module()


def be_taken_in(model_format: str, folder: Path, parent: int) -> NoReturn:
    """Loads and calls the model in the sandbox."""
    layers = confine("compile", Confinement(MEMORY_BYTES, CPU_S, FILE_BYTES, str(folder), ("slot",)), parent)
    if missing(layers):
        os._exit(77)
    try:
        model = load(model_format)
        model(torch.randn(2, 4))
    except BaseException:  # noqa: BLE001
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Answers until its input ends."""
    warnings.simplefilter("ignore")
    # What the loaders import when they are used first, each child would import anew.
    honest = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(4, 4), (torch.randn(2, 4),)), honest)
    torch.export.load(honest).module()(torch.randn(2, 4))
    null = os.open(os.devnull, os.O_RDWR)
    for line in sys.stdin:
        model_format, folder = line.split()
        parent, start = os.getpid(), time.monotonic()
        pid = os.fork()
        if pid == 0:
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.setsid()
            be_taken_in(model_format, Path(folder), parent)
        status = wait(pid, start)
        result = {
            "status": None if status is None else os.waitstatus_to_exitcode(status),
            "seconds": round(time.monotonic() - start, 3),
            "left": sorted(path.name for path in Path(folder).iterdir()),
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
