"""The importers, one format a file, the file's name is the format's (`nouns.ModelFormat`)."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import IRModule

from service.nouns import CompileJob, ModelFormat, Signature
from service.runtime.session import Array


class Reference(Protocol):
    """PyTorch eager, which defines what is right."""

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs in the Signature's order. `inputs` are not changed. Raises what the model raises."""

    def resized(self, inputs: list[Array]) -> list[tuple[int, ...]] | None:
        """The shapes of `inputs` with every symbol one other size that the model allows; None if it has no symbol."""


@dataclass(frozen=True)
class ImportedModel:
    """A Model in Relax, with what it takes to run and to check it."""

    module: IRModule
    signature: Signature
    example_inputs: list[Array]
    reference: Reference
    notes: tuple[str, ...] = ()


class Importer(Protocol):
    """What a file of this folder must define, as functions of the module."""

    def import_model(self, job: CompileJob) -> ImportedModel:
        """Reads the file at `job.model_path`.

        Raises DamagedModel, UnsafeModel, ImportFailed, SignatureMismatch, InvalidInputsFile.
        """

    def load_program(self, job: CompileJob) -> Any:
        """The torch.export.ExportedProgram that the file is or becomes, before anything of it is refused.

        Raises as `import_model`.
        """


def find_importer(model_format: ModelFormat) -> Importer:
    """The importer of a format: the file of its name in this folder."""
    module: Any = importlib.import_module(f"{__name__}.{model_format.value}")
    importer: Importer = module
    return importer
