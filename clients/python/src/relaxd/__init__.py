"""Client of relaxd: compile PyTorch models through Apache TVM Relax over HTTP, look at every step, run them."""

from relaxd import errors
from relaxd.aio import AsyncClient, AsyncCompilation
from relaxd.bisection import Bisection, Finding, Reduced
from relaxd.client import Client, Compilation
from relaxd.compiling import compile
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
from relaxd.local import local_client
from relaxd.nouns import (
    Figures,
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
from relaxd.publishing import Artifact, PublishedModel, PublishedVersion
from relaxd.stages import Stages
from relaxd.surveys import Inspection, Kernel, Operators, Origin, Place, Profile, Provenance, UnsupportedOperator
from relaxd.version import __version__

__all__ = [
    "AnswerTimeout",
    "Artifact",
    "AsyncClient",
    "AsyncCompilation",
    "Bisection",
    "Client",
    "Compilation",
    "CompilationError",
    "Figures",
    "Finding",
    "Function",
    "Inspection",
    "Kernel",
    "Model",
    "Operators",
    "Origin",
    "OutputCheck",
    "PassInfo",
    "PassSpec",
    "Place",
    "ProblemError",
    "Profile",
    "Provenance",
    "PublishedModel",
    "PublishedVersion",
    "Recipe",
    "RecipeInfo",
    "Reduced",
    "RelaxdError",
    "RequestError",
    "ServerError",
    "ServerUnreachable",
    "Signature",
    "Snapshot",
    "Stages",
    "Step",
    "StillRunning",
    "TensorSpec",
    "Timing",
    "UnexpectedAnswer",
    "UnsupportedOperator",
    "Verification",
    "__version__",
    "compile",
    "errors",
    "local_client",
]
