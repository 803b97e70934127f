"""``python -m tests.hostile.trial``: loads the files that it is told of, one a line, in a process that may die.

It reads ``FORMAT PATH FOLDER INPUT`` and answers ``loaded``, ``refused`` or ``fault: …``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

from service.compiler.importers import find_importer
from service.errors import InternalError, Problem
from service.nouns import CompileJob, Limits, ModelFormat, Recipe, TensorSpec, Verify


def attempt(line: str) -> str:
    """What became of one file."""
    model_format, path, folder, name = line.split()
    inputs = None if name == "-" else (TensorSpec(name, (2, 4), "float32"),)
    job = CompileJob(path, ModelFormat(model_format), Recipe(()), Verify.ARTIFACT, inputs, None, folder, Limits())
    try:
        find_importer(job.format).load_program(job)
    except InternalError as problem:
        return f"fault: {problem.detail}"
    except Problem:
        return "refused"
    except Exception as error:  # noqa: BLE001  what is no Problem is what is looked for
        return f"fault: {error!r}"
    return "loaded"


def main() -> None:
    """Answers until its input ends."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for line in sys.stdin:
        sys.stdout.write(attempt(line).replace("\n", " ")[:2000] + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    Path("/proc/self/oom_score_adj").write_text("900")
    main()
