"""Client of relaxd: compile PyTorch models through Apache TVM Relax over HTTP, look at every step, run them."""

from relaxd import errors
from relaxd.aio import AsyncClient, AsyncCompilation
from relaxd.bisection import Bisection, Finding, Reduced
from relaxd.client import Client, Compilation
from relaxd.errors import (
    AnswerTimeout,
    CompilationError,
    ProblemError,
    RelaxdError,
    RequestError,
    ServerError,
    ServerUnreachable,
    StillRunning,
    UnexpectedAnswer,
)
from relaxd.nouns import (
    Function,
    Model,
    OutputCheck,
    PassInfo,
    PassSpec,
    Recipe,
    RecipeInfo,
    Signature,
    Snapshot,
    Step,
    TensorSpec,
    Timing,
    Verification,
)
from relaxd.version import __version__

__all__ = [
    "AnswerTimeout",
    "AsyncClient",
    "AsyncCompilation",
    "Bisection",
    "Client",
    "Compilation",
    "CompilationError",
    "Finding",
    "Function",
    "Model",
    "OutputCheck",
    "PassInfo",
    "PassSpec",
    "ProblemError",
    "Recipe",
    "RecipeInfo",
    "Reduced",
    "RelaxdError",
    "RequestError",
    "ServerError",
    "ServerUnreachable",
    "Signature",
    "Snapshot",
    "Step",
    "StillRunning",
    "TensorSpec",
    "Timing",
    "UnexpectedAnswer",
    "Verification",
    "__version__",
    "errors",
]
