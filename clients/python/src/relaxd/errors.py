"""Everything the client raises of its own, as one tree.

::

    RelaxdError
    ├── ProblemError                the server answered with a Problem (RFC 9457); one subclass per slug
    │   ├── RequestError            the request is at fault: 400, 401, 403, 404, 405, 406, 409, 413, 415
    │   ├── CompilationError        the model or a pass is at fault: 422
    │   └── ServerError             the server is at fault, or out of room: 500, 503, 507
    ├── ServerUnreachable           no connection, or it broke (also a ConnectionError)
    ├── AnswerTimeout               connected, but no answer in time (also a TimeoutError)
    ├── StillRunning                the Compilation goes on, `wait_s` is over (also a TimeoutError)
    └── UnexpectedAnswer            an answer that relaxd does not give: a proxy, or another server

The class statements below the branches are the one table of slugs: each registers itself under its slug, and
`problem_error` looks it up. Statements, and not a loop over strings, so that editors and type checkers know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

_BY_SLUG: dict[str, type[ProblemError]] = {}


class RelaxdError(Exception):
    """Any failure that this package reports."""


class ServerUnreachable(RelaxdError, ConnectionError):
    """No connection to the server could be made, or it broke. The text names the URL and what to do."""


class AnswerTimeout(RelaxdError, TimeoutError):
    """The server took longer than the client's `timeout`. The text names the URL and what to do."""


class UnexpectedAnswer(RelaxdError):
    """The answer is not one that relaxd gives. The text has the URL, the status and the start of the body."""


class StillRunning(RelaxdError, TimeoutError):
    """The Compilation has not ended within `wait_s`. It goes on; `client.get(error.compilation)` asks again."""

    def __init__(self, compilation: str, wait_s: float) -> None:
        super().__init__(compilation, wait_s)
        self.compilation = compilation
        self.wait_s = wait_s

    def __str__(self) -> str:
        return (
            f"compilation {self.compilation} has not ended after {self.wait_s:g} s and goes on; "
            f"ask again with get({self.compilation!r}, wait_s=...), or stop it with delete({self.compilation!r})"
        )


class ProblemError(RelaxdError):
    """The server answered with a Problem. An unknown slug, from a newer server, is an instance of just this class.

    `members` is the problem document as it came; it is the only argument, so that the error can be pickled.
    """

    known_slug: ClassVar[str] = ""

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__(dict(members))
        self.slug: str = str(members.get("type", "about:blank")).rpartition("/")[2]
        self.title: str = str(members.get("title", ""))
        self.status: int = int(members.get("status", 0))
        self.detail: str = str(members.get("detail", ""))
        self.instance: str | None = members.get("instance")
        standard = ("type", "title", "status", "detail", "instance")
        self.extensions: dict[str, Any] = {key: value for key, value in members.items() if key not in standard}

    def __init_subclass__(cls, slug: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.known_slug = slug
        if slug:
            _BY_SLUG[slug] = cls

    @property
    def compilation(self) -> str | None:
        """The id of the failed Compilation; its steps stay readable with `get` and `ir`. None for other errors."""
        value = self.extensions.get("compilation")
        return None if value is None else str(value)

    def __str__(self) -> str:
        where = "" if self.compilation is None else f", compilation {self.compilation}"
        return f"{self.detail or self.title} ({self.slug}, {self.status}{where})"


def problem_error(members: Mapping[str, Any]) -> ProblemError:
    """The error of the class that the document's slug names."""
    slug = str(members.get("type", "")).rpartition("/")[2]
    return _BY_SLUG.get(slug, ProblemError)(members)


def slugs() -> dict[str, type[ProblemError]]:
    """Every slug that this version knows, and its class."""
    return dict(_BY_SLUG)


class RequestError(ProblemError):
    """The request is at fault; `detail` says what to change."""


class CompilationError(ProblemError):
    """The model or a pass is at fault. `compilation` is the failed Compilation."""


class ServerError(ProblemError):
    """The server is at fault, or out of room."""


class MalformedRequest(RequestError, slug="malformed-request"):
    """The body, a part or a header could not be parsed."""


class MissingPart(RequestError, slug="missing-part"):
    """A part of the upload is not there."""


class UnknownField(RequestError, slug="unknown-field"):
    """The request has a field that the server does not know; extension `nearest`."""


class InvalidField(RequestError, slug="invalid-field"):
    """A field has a wrong type or range; extension `field`."""


class UnknownPass(RequestError, slug="unknown-pass"):
    """No pass has that name; extension `nearest`. See `Client.passes`."""


class UnknownRecipe(RequestError, slug="unknown-recipe"):
    """No preset has that name; extension `nearest`. See `Client.recipes`."""


class UnknownOption(RequestError, slug="unknown-option"):
    """The pass has no option of that name; extension `options`."""


class InvalidOption(RequestError, slug="invalid-option"):
    """An option of a pass has a wrong type or range."""


class PassOrder(RequestError, slug="pass-order"):
    """A pass stands where it cannot work."""


class EmptyModel(RequestError, slug="empty-model"):
    """The model has no bytes."""


class DamagedModel(RequestError, slug="damaged-model"):
    """The model file is cut short or corrupted."""


class UnsafeModel(RequestError, slug="unsafe-model"):
    """The model file asks for code to be run or objects to be unpickled."""


class InvalidInputsFile(RequestError, slug="invalid-inputs-file"):
    """The example inputs could not be read."""


class UnknownInput(RequestError, slug="unknown-input"):
    """The Signature has no input of that name; extension `expected`."""


class MissingInput(RequestError, slug="missing-input"):
    """An input of the Signature was not sent."""


class InputShape(RequestError, slug="input-shape"):
    """An input has the wrong shape; extension `expected`."""


class InputDtype(RequestError, slug="input-dtype"):
    """An input has the wrong dtype. Convert it with `array.astype`."""


class InputData(RequestError, slug="input-data"):
    """The values of an input are ragged, too many or few, or out of range."""


class IndexOutOfRange(RequestError, slug="index-out-of-range"):
    """An input is used as an index and lies outside of what it points into."""


class CheckFailed(RequestError, slug="check-failed"):
    """The inputs do not pass a check of the model, or a condition on sizes that it was exported under."""


class UnknownCompilation(RequestError, slug="unknown-compilation"):
    """No Compilation has that id."""


class UnknownStage(RequestError, slug="unknown-stage"):
    """No stage has that name; extension `stages`."""


class StageNotReached(RequestError, slug="stage-not-reached"):
    """This Compilation does not have that stage; extension `stages` lists those it has."""


class UnknownStep(RequestError, slug="unknown-step"):
    """This Compilation has no such step in that stage."""


class UnknownFunction(RequestError, slug="unknown-function"):
    """The Snapshot has no function of that name; extension `functions`."""


class NotFound(RequestError, slug="not-found"):
    """The server has no such path: is `base_url` right?"""


class MethodNotAllowed(RequestError, slug="method-not-allowed"):
    """The path does not take that method."""


class NotAcceptable(RequestError, slug="not-acceptable"):
    """The resource does not have the asked representation."""


class CompilationNotReady(RequestError, slug="compilation-not-ready"):
    """The Compilation has not succeeded, so it cannot run; extension `state`."""


class NoSymptom(RequestError, slug="no-symptom"):
    """Nothing is wrong with the Compilation that a bisection could look for."""


class Cancelled(RequestError, slug="cancelled"):
    """The Compilation was cancelled while this client waited for it."""


class BodyTooLarge(RequestError, slug="body-too-large"):
    """The upload is over the server's limit; extension `limit_bytes`."""


class UnsupportedFormat(RequestError, slug="unsupported-format"):
    """The file is not a model that relaxd imports."""


class UnknownModel(RequestError, slug="unknown-model"):
    """No published model of that name or version; extension `nearest`."""


class CompilationPublished(RequestError, slug="compilation-published"):
    """A published Compilation is not deleted; extension `models`. Withdraw them first."""


class CpuLacksFeatures(RequestError, slug="cpu-lacks-features"):
    """The library is for another CPU than the server's; extension `flags`."""


class UnsupportedEncoding(RequestError, slug="unsupported-encoding"):
    """The body has a Content-Encoding that the server does not read."""


class NotAuthenticated(RequestError, slug="not-authenticated"):
    """The server asks for an API key; give the client `api_key`, or set ``RELAXD_API_KEY``."""


class NotPermitted(RequestError, slug="not-permitted"):
    """The API key lacks a scope; extension `scope`."""


class CrossOrigin(RequestError, slug="cross-origin"):
    """A browser says that the page of another origin sent the request."""


class MisdirectedRequest(RequestError, slug="misdirected-request"):
    """A server without API keys answers only under names of its own machine."""


class HeadTooLarge(RequestError, slug="head-too-large"):
    """The request line and the headers are too large; extension `limit_bytes`."""


class SlowRequest(RequestError, slug="slow-request"):
    """The head or the body of the request came too slowly."""


class RateLimited(RequestError, slug="rate-limited"):
    """The key sends more requests a second of this `scope` than it may; extension `retry_after_s`."""


class QuotaExceeded(RequestError, slug="quota-exceeded"):
    """The key has as much as it may have of `quota`; extension `retry_after_s`."""


class ImportFailed(CompilationError, slug="import-failed"):
    """The model could not be imported; extension `operators`."""


class SignatureMismatch(CompilationError, slug="signature-mismatch"):
    """The declared or example inputs contradict the model."""


class PassFailed(CompilationError, slug="pass-failed"):
    """A pass raised an error; extensions `step` and `pass`."""


class IllFormedModule(CompilationError, slug="ill-formed-module"):
    """A pass left an ill-formed module; extensions `step` and `pass`."""


class BuildFailed(CompilationError, slug="build-failed"):
    """The library could not be built."""


class VerificationFailed(CompilationError, slug="verification-failed"):
    """The numbers differ from PyTorch's; extension `outputs`."""


class ExecutionFailed(CompilationError, slug="execution-failed"):
    """The model or its artifact failed when it was run."""


class DeadlineExceeded(CompilationError, slug="deadline-exceeded"):
    """The work took longer than the server allows; extensions `limit_s` or `limit_cpu_s`, and `phase`."""


class MemoryLimitExceeded(CompilationError, slug="memory-limit-exceeded"):
    """The work needed more memory than the server allows; extension `limit_bytes`."""


class OutputTooLarge(CompilationError, slug="output-too-large"):
    """The IR or the library is larger than the server allows."""


class WorkerCrashed(CompilationError, slug="worker-crashed"):
    """The compiler crashed on this model; extensions `signal` and `step`."""


class WorkerKilled(ServerError, slug="worker-killed"):
    """The worker was killed from outside. Send the request again."""


class WorkerLost(ServerError, slug="worker-lost"):
    """The worker of the model died, hung or was unloaded with the request. Send it again; extension `signal`."""


class RequestTimedOut(ServerError, slug="request-timed-out"):
    """The request's own `timeout` was over before its answer was there."""


class Interrupted(ServerError, slug="interrupted"):
    """The server stopped during the Compilation. Send the request again."""


class StoreDamaged(ServerError, slug="store-damaged"):
    """A stored file is damaged. Delete the Compilation and send it again."""


class InternalError(ServerError, slug="internal-error"):
    """An error the server did not foresee; its log has it under `instance`."""


class ShuttingDown(ServerError, slug="shutting-down"):
    """The server is shutting down."""


class Overloaded(ServerError, slug="overloaded"):
    """The queue is full, also after the client has waited as it was told."""


class StorageFull(ServerError, slug="storage-full"):
    """The server's disk is full."""
