"""The numbers of a module after each step, beside PyTorch eager's, and the first binding that leaves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import IRModule, relax

from service.compiler.kernel_cache import KernelCache
from service.compiler.tolerance import compare
from service.compiler.verify import Case, largest_input
from service.errors import ExecutionFailed, JsonObject, RequestProblem
from service.runtime.session import ENTRY, Array, Session

# The values of the nodes of these names for the inputs of the case.
EagerValues = Callable[[list[Array], set[str]], Mapping[str, Array]]

# An error that grows by this much from one step to the next is a jump.
JUMP = 10.0
_NOISE = 1e-30


@dataclass(frozen=True)
class Numbers:
    """Of one step: the largest absolute error of any output, None where it is no number, and all figures."""

    error: float | None
    passed: bool
    details: JsonObject


@dataclass(frozen=True)
class NumbersState:
    """Where the checks of a Compilation stand after a step."""

    last: Numbers | None
    first_wrong: int | None
    first_jump: int | None


@dataclass
class StepNumbers:
    """Checks one module after another on one case. `node_of` has the model's node of each variable of the import."""

    case: Case
    target: Any
    depth: int
    outputs: tuple[str, ...]
    node_of: Mapping[str, str] = field(default_factory=dict)
    eager_values: EagerValues | None = None
    first_wrong: int | None = None
    first_jump: int | None = None

    def __post_init__(self) -> None:
        self._kernels = KernelCache(self.target)
        self._scale = largest_input(self.case.inputs)
        self._last: Numbers | None = None

    def check(self, mod: IRModule, step: int, changed: bool) -> Numbers:
        """The numbers of `mod`, which is that of the step before where nothing `changed`. Raises ExecutionFailed."""
        last = self._last
        if last is not None and not changed:
            return last
        actual = self._run(mod, self.case.inputs)
        reports = [
            self._report(name, mine, theirs, wide)
            for name, mine, theirs, wide in zip(self.outputs, actual, self.case.expected, self._wide(), strict=False)
        ]
        passed = len(actual) == len(self.case.expected) and all(report["passed"] for report in reports)
        errors = [report["max_abs_error"] for report in reports]
        error = None if None in errors or len(actual) != len(self.case.expected) else max(errors, default=0.0)
        details: JsonObject = {"outputs": reports}
        if not passed:
            details["first_binding"] = self._first_binding(mod)
        numbers = Numbers(error, passed, details)
        self._note(step, numbers, last)
        self._last = numbers
        return numbers

    def state(self) -> NumbersState:
        """What the next step is compared with."""
        return NumbersState(self._last, self.first_wrong, self.first_jump)

    def restore(self, state: NumbersState) -> None:
        """Goes on as if the latest step were that of `state`. Kernels that were built stay."""
        self._last, self.first_wrong, self.first_jump = state.last, state.first_wrong, state.first_jump

    def _note(self, step: int, numbers: Numbers, last: Numbers | None) -> None:
        if not numbers.passed and self.first_wrong is None:
            self.first_wrong = step
        before = None if last is None else last.error
        if self.first_jump is None and before is not None:
            now = math.inf if numbers.error is None else numbers.error
            if now > JUMP * max(before, _NOISE) and not (numbers.passed and before < _NOISE):
                self.first_jump = step

    def summary(self) -> JsonObject:
        """The first step whose outputs are beyond tolerance, and the first whose error is ten times the one before."""
        return {"first_wrong": self.first_wrong, "first_jump": self.first_jump}

    def _wide(self) -> list[Any]:
        return list(self.case.wide) if self.case.wide is not None else [None] * len(self.case.expected)

    def _run(self, mod: IRModule, inputs: list[Array]) -> list[Array]:
        try:
            return Session(self._kernels.build(mod)).run(inputs)
        except RequestProblem as problem:
            raise ExecutionFailed(problem.detail, **problem.extensions) from problem

    def _report(self, name: str, actual: Array, expected: Array, wide: Array | None) -> JsonObject:
        report = compare(actual, expected, wide, depth=self.depth, input_scale=self._scale)
        means: JsonObject = {"mean_abs_error": None, "mean_rel_error": None}
        if report["max_abs_error"] is not None and actual.shape == expected.shape:
            mine, theirs = (value.astype(np.float64) for value in (actual, expected))
            finite = np.isfinite(mine) & np.isfinite(theirs)
            error, size = np.abs(mine - theirs)[finite], np.abs(theirs)[finite]
            relative = error[size > 0] / size[size > 0]
            means = {"mean_abs_error": _mean(error), "mean_rel_error": _mean(relative)}
        kept = ("max_abs_error", "max_rel_error", "passed", "reason")
        return {"name": name, **{key: report[key] for key in kept if key in report}, **means}

    def _first_binding(self, mod: IRModule) -> JsonObject | None:
        """The first binding of the entry that still stands for a node of the model and does not have its value."""
        if self.eager_values is None:
            return None
        names = [name for name in _bound_names(mod[ENTRY]) if name in self.node_of]
        shown = _returning(mod, names)
        if not names or shown is None:
            return None
        try:
            actual = dict(zip(names, self._run(shown, self.case.inputs), strict=False))
            expected = self.eager_values(self.case.inputs, {self.node_of[name] for name in names})
        except Exception:  # noqa: BLE001  a closer look that is not possible: the figures of the outputs stand
            return None
        for name, mine in actual.items():
            theirs = expected.get(self.node_of[name])
            # A pass may have changed its layout: then it is another value by right.
            if theirs is None or theirs.shape != mine.shape or theirs.dtype != mine.dtype:
                continue
            report = compare(mine, theirs, depth=self.depth)
            if not report["passed"]:
                node = self.node_of[name]
                error = report["max_abs_error"]
                return {"binding": name, "node": node, "max_abs_error": error, "reason": report["reason"]}
        return None


def _mean(values: Any) -> float:
    return float(values.mean()) if values.size else 0.0


def _bound_names(function: relax.Function) -> list[str]:
    body = function.body
    blocks = body.blocks if isinstance(body, relax.SeqExpr) else []
    tensors = [
        binding.var for block in blocks for binding in block.bindings if isinstance(binding.var.ty, relax.TensorType)
    ]
    return list(dict.fromkeys(str(var.name) for var in tensors))


def _returning(mod: IRModule, names: list[str]) -> IRModule | None:
    """`mod` with an entry that returns the bindings of these names; None where a name stands for two."""
    plain = relax.transform.ToNonDataflow()(mod)
    function = plain[ENTRY]
    bound: dict[str, list[Any]] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            bound.setdefault(str(binding.var.name), []).append(binding.var)
    if any(len(bound.get(name, ())) != 1 for name in names):
        return None
    variables = [bound[name][0] for name in names]
    body = relax.SeqExpr(function.body.blocks, relax.Tuple(variables))
    types = relax.TupleType([var.ty for var in variables])
    shown = IRModule(dict(plain.functions.items()), attrs=plain.attrs)
    shown[ENTRY] = relax.Function(function.params, body, types, function.is_pure, function.attrs)
    return shown
