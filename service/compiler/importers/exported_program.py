"""`torch.export` archives (`.pt2`): the format that carries shapes, weights and example inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

# Loading imports it lazily, for a CPU second: as an import of this file it is paid once, by the zygote.
import torch.export.pt2_archive._package

from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel
from service.compiler.importers.program import import_program
from service.compiler.importers.stored_tensors import restore
from service.compiler.readers.archive import ArchiveLimits
from service.compiler.readers.pt2 import Pt2File, rewrite_pt2
from service.compiler.size_guards import KEPT_IN
from service.errors import DamagedModel
from service.nouns import CompileJob


def import_model(job: CompileJob) -> ImportedModel:
    """Implements `Importer.import_model`."""
    return import_program(load_program(job), job)


def load_program(job: CompileJob) -> torch.export.ExportedProgram:
    """Implements `Importer.load_program`. torch reads a file that was written anew, never the uploaded one."""
    clean = Path(job.work_dir) / "model.pt2"
    read = rewrite_pt2(Path(job.model_path), clean, ArchiveLimits.of(job.limits))
    with boundary(DamagedModel, "The file is not a whole torch.export archive", job.limits):
        # As an open file: of a path, torch judges by the suffix.
        with clean.open("rb") as file:
            program = torch.export.load(file)
        program.example_inputs = _examples(program, read)
        program.graph_module.meta[KEPT_IN] = list(read.guards)
        return program


def _examples(program: torch.export.ExportedProgram, read: Pt2File) -> Any:
    """The sample inputs as tensors, or None when they do not fit the program."""
    if read.examples is None:
        return None
    args, kwargs = restore(read.examples, read.storages)
    try:
        program.example_inputs = (tuple(args), kwargs)
    except (ValueError, TypeError, KeyError):
        return None
    return program.example_inputs
