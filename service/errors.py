"""Every error relaxd can answer with, as one tree.

::

    Problem
    ├── RequestProblem                 the request is at fault
    │   ├── MalformedRequest           400 malformed-request
    │   ├── MissingPart                400 missing-part
    │   ├── UnknownField               400 unknown-field
    │   ├── InvalidField               400 invalid-field
    │   ├── UnknownPass                400 unknown-pass
    │   ├── UnknownRecipe              400 unknown-recipe
    │   ├── UnknownOption              400 unknown-option
    │   ├── InvalidOption              400 invalid-option
    │   ├── PassOrder                  400 pass-order
    │   ├── EmptyModel                 400 empty-model
    │   ├── DamagedModel               400 damaged-model
    │   ├── UnsafeModel                400 unsafe-model
    │   ├── InvalidInputsFile          400 invalid-inputs-file
    │   ├── UnknownInput               400 unknown-input
    │   ├── MissingInput               400 missing-input
    │   ├── InputShape                 400 input-shape
    │   ├── InputDtype                 400 input-dtype
    │   ├── InputData                  400 input-data
    │   ├── IndexOutOfRange            400 index-out-of-range
    │   ├── CheckFailed                400 check-failed
    │   ├── UnknownCompilation         404 unknown-compilation
    │   ├── UnknownStage               404 unknown-stage
    │   ├── StageNotReached            404 stage-not-reached
    │   ├── UnknownStep                404 unknown-step
    │   ├── UnknownFunction            404 unknown-function
    │   ├── NotFound                   404 not-found
    │   ├── MethodNotAllowed           405 method-not-allowed
    │   ├── NotAcceptable              406 not-acceptable
    │   ├── CompilationNotReady        409 compilation-not-ready
    │   ├── NoSymptom                  409 no-symptom
    │   ├── Cancelled                  409 cancelled
    │   ├── BodyTooLarge               413 body-too-large
    │   └── UnsupportedFormat          415 unsupported-format
    ├── CompilationProblem             the model or a pass is at fault: the Compilation fails
    │   ├── ImportFailed               422 import-failed
    │   ├── SignatureMismatch          422 signature-mismatch
    │   ├── PassFailed                 422 pass-failed
    │   ├── IllFormedModule            422 ill-formed-module
    │   ├── BuildFailed                422 build-failed
    │   ├── VerificationFailed         422 verification-failed
    │   ├── ExecutionFailed            422 execution-failed
    │   ├── DeadlineExceeded           422 deadline-exceeded
    │   ├── MemoryLimitExceeded        422 memory-limit-exceeded
    │   ├── OutputTooLarge             422 output-too-large
    │   └── WorkerCrashed              422 worker-crashed
    └── ServerProblem                  relaxd is at fault, or out of room
        ├── WorkerKilled               500 worker-killed
        ├── Interrupted                500 interrupted
        ├── StoreDamaged               500 store-damaged
        ├── InternalError              500 internal-error
        ├── ShuttingDown               503 shutting-down
        ├── StorageFull                507 storage-full
        └── Overloaded                 503 overloaded

Each leaf has a fixed slug, status and title; its docstring says what happened and what to do, and is
the text of docs/errors.md. The only translation to HTTP is ``service/api/problems.py``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

JsonObject = dict[str, Any]


class Problem(Exception):
    """An error as RFC 9457 describes it: a fixed type, one sentence of detail, typed extension members."""

    slug: ClassVar[str] = ""
    status: ClassVar[int] = 500
    title: ClassVar[str] = ""

    def __init__(self, detail: str, **extensions: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extensions: JsonObject = {key: value for key, value in extensions.items() if value is not None}

    def to_json(self) -> JsonObject:
        """The members of the problem document, without ``instance``, which belongs to one answer."""
        fixed = {"type": f"/problems/{self.slug}", "title": self.title, "status": self.status, "detail": self.detail}
        return {**fixed, **self.extensions}


class RequestProblem(Problem):
    """The request is at fault."""


class CompilationProblem(Problem):
    """The model or a pass is at fault: the Compilation fails, its earlier Snapshots stay readable."""

    status = 422


class ServerProblem(Problem):
    """relaxd is at fault, or out of room."""


class MalformedRequest(RequestProblem):
    """The body, a part or a header could not be parsed. The detail says where parsing stopped."""

    slug, status, title = "malformed-request", 400, "The request could not be parsed"


class MissingPart(RequestProblem):
    """A multipart part that the call needs is not there. Send it under the name in `part`."""

    slug, status, title = "missing-part", 400, "A part of the request is missing"


class UnknownField(RequestProblem):
    """The request has a field that relaxd does not know. `nearest` names the most similar known fields."""

    slug, status, title = "unknown-field", 400, "Unknown field"


class InvalidField(RequestProblem):
    """A field has a value of the wrong type or outside its range. `field` is its path."""

    slug, status, title = "invalid-field", 400, "Invalid field"


class UnknownPass(RequestProblem):
    """The recipe names a pass that the Catalogue does not have. `nearest` names similar ones; see GET /passes."""

    slug, status, title = "unknown-pass", 400, "Unknown pass"


class UnknownRecipe(RequestProblem):
    """`passes` is a string, but no preset has that name. See GET /recipes."""

    slug, status, title = "unknown-recipe", 400, "Unknown recipe"


class UnknownOption(RequestProblem):
    """A pass was given an option that it does not have. `options` lists those it has."""

    slug, status, title = "unknown-option", 400, "Unknown option"


class InvalidOption(RequestProblem):
    """An option of a pass has a value of the wrong type or outside its range."""

    slug, status, title = "invalid-option", 400, "Invalid option"


class PassOrder(RequestProblem):
    """A pass stands where it cannot work, such as an operator fusion after lowering. Reorder as the detail says."""

    slug, status, title = "pass-order", 400, "Passes in an impossible order"


class EmptyModel(RequestProblem):
    """The `model` part has no bytes. Check the path given to the client (curl needs `-F model=@FILE`)."""

    slug, status, title = "empty-model", 400, "The model file is empty"


class DamagedModel(RequestProblem):
    """The file looks like a supported format but is cut short or corrupted. Save and send it again."""

    slug, status, title = "damaged-model", 400, "The model file is damaged"


class UnsafeModel(RequestProblem):
    """The file asks to run code, open files or unpack without bound, at `where`. Export anew with torch.export.save."""

    slug, status, title = "unsafe-model", 400, "The model file is refused as unsafe"


class InvalidInputsFile(RequestProblem):
    """The `inputs` part is not an `.npz` archive of plain arrays. Write it with `numpy.savez`."""

    slug, status, title = "invalid-inputs-file", 400, "The example inputs could not be read"


class UnknownInput(RequestProblem):
    """An input has a name that the model's Signature does not have. `expected` lists its names."""

    slug, status, title = "unknown-input", 400, "Unknown input"


class MissingInput(RequestProblem):
    """The Signature has an input that was not sent."""

    slug, status, title = "missing-input", 400, "An input is missing"


class InputShape(RequestProblem):
    """An input has the wrong rank or shape. `expected` is the Signature's shape."""

    slug, status, title = "input-shape", 400, "An input has the wrong shape"


class InputDtype(RequestProblem):
    """An input has another dtype than the Signature says."""

    slug, status, title = "input-dtype", 400, "An input has the wrong dtype"


class InputData(RequestProblem):
    """The values of an input are ragged, of the wrong count, not numbers, or outside the range of its dtype."""

    slug, status, title = "input-data", 400, "The data of an input is invalid"


class IndexOutOfRange(RequestProblem):
    """An input is used as an index and lies outside of what it points into; PyTorch raises an IndexError."""

    slug, status, title = "index-out-of-range", 400, "An index in the inputs is out of range"


class CheckFailed(RequestProblem):
    """An assertion of the model, or a condition on sizes that it was exported under, does not hold of the inputs."""

    slug, status, title = "check-failed", 400, "The inputs do not pass a check of the model"


class UnknownCompilation(RequestProblem):
    """No Compilation has that id: it was never made, or was deleted. See GET /compile."""

    slug, status, title = "unknown-compilation", 404, "Unknown compilation"


class UnknownStage(RequestProblem):
    """No stage has that name. `stages` lists all of them."""

    slug, status, title = "unknown-stage", 404, "Unknown stage"


class StageNotReached(RequestProblem):
    """The Compilation has no Snapshot of that stage. `stages` lists those it has; add a pass of the stage to get it."""

    slug, status, title = "stage-not-reached", 404, "The compilation does not have that stage"


class UnknownStep(RequestProblem):
    """This Compilation has no step of that index, or it belongs to another stage."""

    slug, status, title = "unknown-step", 404, "Unknown step"


class UnknownFunction(RequestProblem):
    """The Snapshot has no function of that name. `functions` lists those it has."""

    slug, status, title = "unknown-function", 404, "Unknown function"


class NotFound(RequestProblem):
    """No resource has that path. /openapi.json lists all paths."""

    slug, status, title = "not-found", 404, "Not found"


class MethodNotAllowed(RequestProblem):
    """The path exists, but not for that method. The `Allow` header lists the methods."""

    slug, status, title = "method-not-allowed", 405, "Method not allowed"


class NotAcceptable(RequestProblem):
    """The `Accept` header asks for a representation that this resource does not have."""

    slug, status, title = "not-acceptable", 406, "Not acceptable"


class CompilationNotReady(RequestProblem):
    """The Compilation has not succeeded (yet), so it has no Artifact to run. `state` says where it stands."""

    slug, status, title = "compilation-not-ready", 409, "The compilation has no artifact"


class NoSymptom(RequestProblem):
    """Nothing is wrong with the Compilation that a bisection could look for. Name what is slow, or bisect another."""

    slug, status, title = "no-symptom", 409, "There is no symptom to bisect"


class Cancelled(RequestProblem):
    """The Compilation was cancelled by DELETE while this request waited for it. Send it again to run it again."""

    slug, status, title = "cancelled", 409, "The compilation was cancelled"


class BodyTooLarge(RequestProblem):
    """The body or a part is over its limit. `limit_bytes` says the limit; the operator can raise it."""

    slug, status, title = "body-too-large", 413, "The body is too large"


class UnsupportedFormat(RequestProblem):
    """The file is not a model that relaxd imports. The detail says what it is and how to make a `.pt2` of it."""

    slug, status, title = "unsupported-format", 415, "Unsupported model format"


class ImportFailed(CompilationProblem):
    """The model could not be imported into Relax. `operators` lists the operators that have no conversion, if any."""

    slug, title = "import-failed", "The model could not be imported"


class SignatureMismatch(CompilationProblem):
    """`inputs` or the example inputs of the request contradict the model's own Signature."""

    slug, title = "signature-mismatch", "The inputs contradict the model's signature"


class PassFailed(CompilationProblem):
    """A pass raised an error. `step` and `pass` say which; all Snapshots before it stay readable."""

    slug, title = "pass-failed", "A pass failed"


class IllFormedModule(CompilationProblem):
    """A pass left a module that the well-formed check refuses. `step` and `pass` say which."""

    slug, title = "ill-formed-module", "A pass left an ill-formed module"


class BuildFailed(CompilationProblem):
    """The module after the last pass could not be built into a library."""

    slug, title = "build-failed", "The build failed"


class VerificationFailed(CompilationProblem):
    """The outputs differ from PyTorch eager's beyond tolerance: nothing is served. `outputs` has the figures."""

    slug, title = "verification-failed", "The artifact's numbers differ from PyTorch's"


class ExecutionFailed(CompilationProblem):
    """The model or its artifact raised an error when it was run."""

    slug, title = "execution-failed", "The model could not be run"


class DeadlineExceeded(CompilationProblem):
    """The work took longer than `limit_s` or `limit_cpu_s` allows and was stopped; `phase` and `step` say where."""

    slug, title = "deadline-exceeded", "The deadline was exceeded"


class MemoryLimitExceeded(CompilationProblem):
    """The work needed more memory than its limit. `limit_bytes` says the limit; the operator can raise it."""

    slug, title = "memory-limit-exceeded", "The memory limit was exceeded"


class OutputTooLarge(CompilationProblem):
    """A worker produced more IR or a larger library than its limit."""

    slug, title = "output-too-large", "The result is too large"


class WorkerCrashed(CompilationProblem):
    """The worker died by a fault of its own (`signal`) at this model; `step` says where. Please report the model."""

    slug, title = "worker-crashed", "The worker crashed"


class WorkerKilled(ServerProblem):
    """The worker process was killed from outside (`signal`), for example for lack of memory. Send the request again."""

    slug, status, title = "worker-killed", 500, "The worker was killed"


class Interrupted(ServerProblem):
    """The server stopped while this Compilation was queued or running. Send the request again."""

    slug, status, title = "interrupted", 500, "The compilation was interrupted"


class StoreDamaged(ServerProblem):
    """A stored file is missing or has another hash than its name. Delete the Compilation and send it again."""

    slug, status, title = "store-damaged", 500, "A stored file is damaged"


class InternalError(ServerProblem):
    """An error that relaxd did not foresee. The log has it under `instance`."""

    slug, status, title = "internal-error", 500, "Internal error"


class ShuttingDown(ServerProblem):
    """The server is shutting down and takes no new work. Send the request again after `retry_after_s`."""

    slug, status, title = "shutting-down", 503, "The server is shutting down"


class Overloaded(ServerProblem):
    """The queue is full. Send the request again after `retry_after_s`."""

    slug, status, title = "overloaded", 503, "The server is overloaded"


class StorageFull(ServerProblem):
    """The disk of the server is full. Delete Compilations that are not needed, or ask the operator."""

    slug, status, title = "storage-full", 507, "The server's storage is full"


def all_problems(below: type[Problem] = Problem) -> list[type[Problem]]:
    """Every leaf of the tree, in the order of the tree."""
    children = below.__subclasses__()
    return [leaf for child in children for leaf in all_problems(child)] if children else [below]


def problem_from_json(members: Mapping[str, Any]) -> Problem:
    """The Problem that `to_json` wrote; an unknown slug (a newer journal) becomes an InternalError."""
    slug = str(members.get("type", "")).rpartition("/")[2]
    cls = next((leaf for leaf in all_problems() if leaf.slug == slug), InternalError)
    fixed = ("type", "title", "status", "detail")
    extensions = {key: value for key, value in members.items() if key not in fixed}
    return cls(str(members.get("detail", "")), **extensions)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names most similar to `name`, best first."""
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
