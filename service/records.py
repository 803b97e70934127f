"""The nouns of the web process: a Model, its Artifact, and the Compilation that leads from one to the other."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from service.errors import JsonObject
from service.leftovers import remove
from service.nouns import (
    BUILD_STAGES,
    ModelFormat,
    Recipe,
    Signature,
    SpecialValues,
    State,
    Step,
    TensorSpec,
    Translator,
    Verify,
    canonical_json,
)
from service.tuning import TUNED, TuningProgress, TuningRecord, records_used

COMPILATION_KEY_VERSION = 1


def compilation_id(
    model_sha256: str,
    recipe: Recipe,
    verify: Verify,
    special_values: SpecialValues,
    inputs: JsonObject,
    toolchain: JsonObject,
    translator: Translator | None = None,
    tune_s: float | None = None,
) -> str:
    """The id of a Compilation: 32 hex digits of the SHA-256 over everything that changes its result.

    `inputs` holds the request's declared inputs and the hash of its example inputs; `toolchain` the versions
    of what compiles and the CPU that ``native`` means. The name of a Recipe is left out: it changes nothing. So are
    tuning records: they change the speed of the result alone. `tune_s` is what may be spent on finding more.
    """
    key = {
        "version": COMPILATION_KEY_VERSION,
        "model": model_sha256,
        "passes": [spec.to_json() for spec in recipe.passes],
        "target": recipe.target.to_json(),
        "context": recipe.context.to_json(),
        "import": (translator or Translator()).to_json(),
        "verify": verify.value,
        "special_values": special_values.value,
        "inputs": inputs,
        "toolchain": toolchain,
        "until": None if recipe.until is None else recipe.until.value,
    }
    if tune_s is not None:
        key["tune"] = {"budget_s": tune_s}
    return hashlib.sha256(canonical_json(key)).hexdigest()[:32]


@dataclass(frozen=True)
class Model:
    """Uploaded bytes, named by their SHA-256. `filename` is what the caller called them, for people only."""

    sha256: str
    format: ModelFormat
    bytes: int
    filename: str

    def to_json(self) -> JsonObject:
        return {"sha256": self.sha256, "format": self.format.value, "bytes": self.bytes, "filename": self.filename}

    @classmethod
    def from_json(cls, value: JsonObject) -> Model:
        return cls(value["sha256"], ModelFormat(value["format"]), value["bytes"], value["filename"])


@dataclass(frozen=True)
class Artifact:
    """The compiled library, by its SHA-256, and its manifest."""

    library_sha256: str
    manifest: JsonObject

    def to_json(self) -> JsonObject:
        return {"library_sha256": self.library_sha256, "manifest": self.manifest}

    @classmethod
    def from_json(cls, value: JsonObject) -> Artifact:
        return cls(value["library_sha256"], value["manifest"])


@dataclass(frozen=True)
class Compilation:
    """One request and all that came of it. Times are ISO 8601 in UTC; `timings` has wall and CPU ms by phase.

    `steps` are the import and the positions of the Recipe; `results` what the build made of the last of them, one a
    stage, in the form of steps. The first `reused_steps` are those of an earlier one. `inputs_sha256` is that of the
    example inputs that came with the request, `toolchain` what the id depends on besides the request; `tuning` is there
    where the request has a budget for it.
    """

    id: str
    state: State
    created_at: str
    model: Model
    recipe: Recipe
    verify: Verify
    special_values: SpecialValues = SpecialValues.FAIL
    started_at: str | None = None
    ended_at: str | None = None
    inputs: tuple[TensorSpec, ...] | None = None
    signature: Signature | None = None
    steps: tuple[Step, ...] = ()
    results: tuple[Step, ...] = ()
    timings: tuple[JsonObject, ...] = ()
    verification: JsonObject | None = None
    artifact: Artifact | None = None
    problem: JsonObject | None = None
    translator: Translator = Translator()
    reused_steps: int = 0
    inputs_sha256: str | None = None
    toolchain: JsonObject = field(default_factory=dict)
    tuning: TuningProgress | None = None

    def to_json(self, with_steps: bool = True) -> JsonObject:
        document: JsonObject = {
            "id": self.id,
            "state": self.state.value,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "model": self.model.to_json(),
            "recipe": self.recipe.to_json(),
            "verify": self.verify.value,
            "special_values": self.special_values.value,
            "import": self.translator.to_json(),
            "inputs": None if self.inputs is None else [spec.to_json() for spec in self.inputs],
            "toolchain": self.toolchain,
            "signature": None if self.signature is None else self.signature.to_json(),
            "timings": list(self.timings),
            "verification": self.verification,
            "artifact": None if self.artifact is None else self.artifact.to_json(),
            "problem": self.problem,
            "reused_steps": self.reused_steps,
            "inputs_sha256": self.inputs_sha256,
            "tuning": None if self.tuning is None else self.tuning.to_json(),
        }
        if with_steps:
            document |= {"steps": list(map(self._linked, self.steps)), "results": list(map(self._linked, self.results))}
            if self.problem is not None:
                document["problem"] = {**self.problem, "repro": self.repro}
        return document

    @property
    def tuning_records(self) -> tuple[TuningRecord, ...]:
        """The records by which its kernels got their parameters."""
        details = [step.details.get("kernels") for step in self.steps if step.pass_name == TUNED]
        return records_used(entry for kernels in details if isinstance(kernels, list) for entry in kernels)

    @property
    def repro(self) -> str:
        """Where all that it takes to run it again can be had."""
        return f"/compile/{self.id}/repro.zip"

    def _linked(self, step: Step) -> JsonObject:
        return {**step.to_json(), "href": f"/ir/{step.stage.value}?id={self.id}&step={step.index}"}

    def with_step(self, step: Step) -> Compilation:
        """With one more step, or one more result of the build."""
        if step.stage in BUILD_STAGES:
            return dataclasses.replace(self, results=(*self.results, step))
        return dataclasses.replace(self, steps=(*self.steps, step))

    @classmethod
    def from_json(cls, value: JsonObject, steps: tuple[Step, ...]) -> Compilation:
        """Reads what `to_json` wrote without steps."""
        return cls(
            id=value["id"],
            state=State(value["state"]),
            created_at=value["created_at"],
            model=Model.from_json(value["model"]),
            recipe=Recipe.from_json(value["recipe"]),
            verify=Verify(value["verify"]),
            special_values=SpecialValues(value.get("special_values", "fail")),
            translator=Translator.from_json(value["import"]) if "import" in value else Translator(),
            started_at=value["started_at"],
            ended_at=value["ended_at"],
            inputs=None if value["inputs"] is None else tuple(map(TensorSpec.from_json, value["inputs"])),
            toolchain=value.get("toolchain", {}),
            signature=None if value["signature"] is None else Signature.from_json(value["signature"]),
            steps=tuple(step for step in steps if step.stage not in BUILD_STAGES),
            results=tuple(step for step in steps if step.stage in BUILD_STAGES),
            timings=tuple(value["timings"]),
            verification=value["verification"],
            artifact=None if value["artifact"] is None else Artifact.from_json(value["artifact"]),
            problem=value["problem"],
            reused_steps=value.get("reused_steps", 0),
            inputs_sha256=value.get("inputs_sha256"),
            tuning=TuningProgress.from_json(value["tuning"]) if value.get("tuning") else None,
        )


@dataclass(frozen=True)
class Request:
    """A checked request: what was uploaded lies in the store's scratch folder, the rest is in the store already.

    With `keep` the worker waits for a next Compilation of the same model. `tune_s` are the seconds to tune kernels for.
    """

    model: Model
    model_file: Path | None
    recipe: Recipe
    verify: Verify
    special_values: SpecialValues = SpecialValues.FAIL
    inputs: tuple[TensorSpec, ...] | None = None
    inputs_sha256: str | None = None
    inputs_file: Path | None = None
    translator: Translator = Translator()
    keep: bool = False
    tune_s: float | None = None

    @property
    def kind(self) -> bytes:
        """What Compilations have in common that differ in their passes alone."""
        return canonical_json(
            {
                "model": [self.model.sha256, self.model.format.value],
                "inputs": None if self.inputs is None else [spec.to_json() for spec in self.inputs],
                "examples": self.inputs_sha256,
                "import": self.translator.to_json(),
                "target": self.recipe.target.to_json(),
                "context": self.recipe.context.to_json(),
                "verify": self.verify.value,
                "tune": self.tune_s,
            }
        )

    def key(self, toolchain: JsonObject) -> str:
        """The id of its Compilation by that toolchain."""
        declared = None if self.inputs is None else [spec.to_json() for spec in self.inputs]
        return compilation_id(
            self.model.sha256,
            self.recipe,
            self.verify,
            self.special_values,
            {"declared": declared, "examples": self.inputs_sha256},
            toolchain,
            self.translator,
            self.tune_s,
        )

    def discard(self) -> None:
        """Removes what still lies in the scratch folder."""
        remove(*(file for file in (self.model_file, self.inputs_file) if file is not None))


def now() -> str:
    """This moment in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
