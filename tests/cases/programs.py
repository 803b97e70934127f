"""Runs small programs through export, compilation and a Session, and holds them against PyTorch eager."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from service.compiler.build import build_executable
from service.compiler.constants import array_of
from service.compiler.importers.program import import_program
from service.compiler.passes import make_pass
from service.compiler.recipes import load_catalogue
from service.compiler.report import Report
from service.compiler.target import tvm_target
from service.errors import Problem
from service.nouns import CompileJob, Limits, ModelFormat, Target, Verify
from service.runtime.session import Session

CATALOGUE = load_catalogue()


class Calls(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def job_of(passes: Any) -> CompileJob:
    """A job that reads and writes no file."""
    recipe = CATALOGUE.recipe(passes, Target(), 200)
    return CompileJob("", ModelFormat.EXPORTED_PROGRAM, recipe, Verify.ARTIFACT, None, None, "", Limits())


def session_of(module: Any, args: tuple[Any, ...], passes: Any = "generic", dynamic_shapes: Any = None) -> Session:
    """The compiled module. Raises a Problem where it is refused."""
    return Session(executable_of(module, args, passes, dynamic_shapes))


def executable_of(module: Any, args: tuple[Any, ...], passes: Any = "generic", dynamic_shapes: Any = None) -> Any:
    """As session_of, not loaded."""
    module = module.eval() if isinstance(module, nn.Module) else Calls(module)
    with warnings.catch_warnings():
        # What torch says of the module that is exported is not about what is tested.
        warnings.simplefilter("ignore", UserWarning)
        program = torch.export.export(module, args, dynamic_shapes=dynamic_shapes)
    job, target = job_of(passes), tvm_target(Target())
    mod = import_program(program, job).module
    for spec in job.recipe.passes:
        with target:
            mod = make_pass(spec).apply(mod, Report())
    return build_executable(mod, target)


def arrays_of(tree: Any) -> list[np.ndarray]:
    return [array_of(leaf) for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def eager(module: Any, args: tuple[Any, ...]) -> list[np.ndarray]:
    with torch.no_grad():
        return arrays_of(module(*copy.deepcopy(args)))


def assert_equal(actual: list[np.ndarray], expected: list[np.ndarray], rtol: float = 1e-3, atol: float = 1e-4) -> None:
    """Dtypes, shapes, values, NaN and infinities."""
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        if theirs.dtype.kind in "fV":
            mine, theirs = mine.astype("float64"), theirs.astype("float64")  # noqa: PLW2901 - bfloat16 compares badly
        np.testing.assert_allclose(mine, theirs, rtol, atol, equal_nan=True)


@dataclass(frozen=True)
class Outcome:
    """``equal``, or ``refused`` with the Problem that says why."""

    kind: str
    problem: Problem | None = None


def try_program(module: Any, args: tuple[Any, ...], passes: Any = "generic", **options: Any) -> Outcome:
    """Raises AssertionError where the compiled module answers otherwise than eager. `run` are other inputs,
    `calls` how often it is called, `dynamic_shapes` as for torch.export, the others are tolerances."""
    run, calls = options.pop("run", None) or args, options.pop("calls", 1)
    try:
        session = session_of(module, args, passes, options.pop("dynamic_shapes", None))
    except Problem as problem:
        return Outcome("refused", problem)
    for _ in range(calls):
        try:
            expected = eager(module, run)
        except Exception as error:
            return _fails_too(session, run, error)
        assert_equal(session.run(arrays_of(run)), expected, **options)
    return Outcome("equal")


def _fails_too(session: Session, run: tuple[Any, ...], error: Exception) -> Outcome:
    try:
        session.run(arrays_of(run))
    except Problem as problem:
        return Outcome("refused", problem)
    raise AssertionError(f"eager raises {error!r}, the library answers")
