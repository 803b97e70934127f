"""`torch.export` archives (`.pt2`): the format that carries shapes, weights and example inputs."""

from __future__ import annotations

from pathlib import Path

import torch

# Loading imports it lazily, for a CPU second: as an import of this file it is paid once, by the zygote.
import torch.export.pt2_archive._package

from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel
from service.compiler.importers.program import import_program
from service.errors import DamagedModel
from service.nouns import CompileJob


def import_model(job: CompileJob) -> ImportedModel:
    """Implements `Importer.import_model`."""
    damaged = boundary(DamagedModel, "The file is not a whole torch.export archive", job.limits)
    # As an open file: of a path, torch judges by the suffix, and the store names files by their hash alone.
    with damaged, Path(job.model_path).open("rb") as file:
        program = torch.export.load(file)
    return import_program(program, job)
