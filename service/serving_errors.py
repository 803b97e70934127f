"""Errors of access, published models and the Open Inference Protocol, beside those of `service.errors`.

RequestProblem
├── UnknownModel          404 unknown-model
├── CompilationPublished  409 compilation-published
├── CpuLacksFeatures      409 cpu-lacks-features
├── UnsupportedEncoding   415 unsupported-encoding
├── NotAuthenticated      401 not-authenticated
├── NotPermitted          403 not-permitted
├── CrossOrigin           403 cross-origin
├── SlowRequest           408 slow-request
├── MisdirectedRequest    421 misdirected-request
├── RateLimited           429 rate-limited
├── QuotaExceeded         429 quota-exceeded
└── HeadTooLarge          431 head-too-large

ServerProblem
├── WorkerLost            503 worker-lost
└── RequestTimedOut       504 request-timed-out
"""

from __future__ import annotations

from service.errors import RequestProblem, ServerProblem


class UnknownModel(RequestProblem):
    """No model is published under that name, or not in that version, and no Compilation has it as its id.

    `nearest` lists similar names; ``GET /models`` all of them.
    """

    slug, status, title = "unknown-model", 404, "Unknown model"


class CompilationPublished(RequestProblem):
    """The Compilation is a version of a published model, so it is not deleted. `models` names them: unpublish first."""

    slug, status, title = "compilation-published", 409, "The compilation is published"


class CpuLacksFeatures(RequestProblem):
    """The library was built for another CPU: this one lacks the `flags`. Compile here for ``native``."""

    slug, status, title = "cpu-lacks-features", 409, "The artifact is for another CPU"


class UnsupportedEncoding(RequestProblem):
    """The body has a Content-Encoding other than gzip and deflate, or is not what it says. Send it plainly."""

    slug, status, title = "unsupported-encoding", 415, "The encoding of the body is not supported"


class NotAuthenticated(RequestProblem):
    """The request has no API key, or one that is not known. Send `Authorization: Bearer <key>`."""

    slug, status, title = "not-authenticated", 401, "An API key is needed"


class NotPermitted(RequestProblem):
    """The API key has not the `scope` that this call needs. The operator gives scopes when a key is made."""

    slug, status, title = "not-permitted", 403, "The API key does not permit this"


class CrossOrigin(RequestProblem):
    """A browser says that the page of another origin sent this. Call the API from the page of this server, or from
    a program that is no browser.
    """

    slug, status, title = "cross-origin", 403, "Another page may not call this"


class MisdirectedRequest(RequestProblem):
    """A server without API keys answers only where `Host` names its own machine: `localhost` or a loopback address."""

    slug, status, title = "misdirected-request", 421, "The request was meant for another host"


class SlowRequest(RequestProblem):
    """The head or the body of the request came too slowly, and the connection was closed. Send it again, at one go."""

    slug, status, title = "slow-request", 408, "The request came too slowly"


class RateLimited(RequestProblem):
    """The key sends more requests a second of this `scope` than it may. Send it again after `retry_after_s`."""

    slug, status, title = "rate-limited", 429, "Too many requests"


class QuotaExceeded(RequestProblem):
    """The key has as much as it may have of `quota`: `compilations` that run or wait, or `stored_bytes`.

    Send it again after `retry_after_s`, or DELETE Compilations that are not needed.
    """

    slug, status, title = "quota-exceeded", 429, "A quota is used up"


class HeadTooLarge(RequestProblem):
    """The request line and the headers are larger than `limit_bytes`, or there are too many headers. Send fewer."""

    slug, status, title = "head-too-large", 431, "The head of the request is too large"


class WorkerLost(ServerProblem):
    """The worker of the model died, hung or was unloaded while it had the request. Send the request again.

    `signal` is how it died, where it was one. Another worker is started at once; where requests keep ending like this,
    the model crashes on what it is sent.
    """

    slug, status, title = "worker-lost", 503, "The worker of the model was lost"


class RequestTimedOut(ServerProblem):
    """The request's own `timeout` was over before its answer was there. Send it later, or with more time."""

    slug, status, title = "request-timed-out", 504, "The request's timeout is over"
