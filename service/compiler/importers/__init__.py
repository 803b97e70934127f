"""The importers, one format a file, the file's name is the format's (`nouns.ModelFormat`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tvm import IRModule

from service.compiler.provenance import Origin
from service.nouns import CompileJob, ModelFormat, Signature
from service.runtime.session import Array


class Reference(Protocol):
    """PyTorch eager, which defines what is right."""

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs in the Signature's order. `inputs` are not changed. Raises what the model raises."""

    def run_wide(self, inputs: list[Array]) -> list[Array] | None:
        """As `run`, with float64 in place of narrower floats: what rounding hides. None where that cannot be done."""

    def second_opinions(self, inputs: list[Array], special: bool) -> list[list[Array]]:
        """What else PyTorch gives, which then does not define the answer; empty where that cannot be done.

        With the first of equal elements where it leaves open which one is named. On `special` inputs also by its own
        decompositions into simpler operators. Both in the model's dtypes and in float64.
        """

    def resized(self, inputs: list[Array], choice: int = 0) -> list[tuple[int, ...]] | None:
        """The shapes of `inputs` with every symbol one other size that the model allows; None if it has no symbol.

        `choice` 0 and 1 are two sizes, where the bounds allow two.
        """

    def depth(self) -> int:
        """How many operators on floats follow on each other at most: rounding grows with it."""

    def makes_integers(self) -> bool:
        """Whether floats are converted to integers, which has no defined result for NaN and out of range."""


@dataclass(frozen=True)
class ImportedModel:
    """A Model in Relax, with what it takes to run and to check it; `origins` has the node of each variable.

    `node_of` has the name of the node whose value a variable is; `node_values` runs eager node by node and gives the
    values of the nodes of some names.
    """

    module: IRModule
    signature: Signature
    example_inputs: list[Array]
    reference: Reference
    notes: tuple[str, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    node_of: Mapping[str, str] = field(default_factory=dict)
    node_values: Callable[[list[Array], set[str]], Mapping[str, Array]] | None = None


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


def find_importer(model_format: ModelFormat, translator: str = "relaxd") -> Importer:
    """The importer of a format: the file of its name in this folder; for another translator the file of its name."""
    name = model_format.value if translator == "relaxd" else translator
    module: Any = importlib.import_module(f"{__name__}.{name}")
    importer: Importer = module
    return importer
