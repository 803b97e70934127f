"""The steps of a Recipe: begin, pass, well-formed check, Snapshot, numeric check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import IRModule, relax

from service.compiler.clock import Duration, check
from service.compiler.foreign import boundary
from service.compiler.inner_passes import InnerPasses
from service.compiler.passes import Pass, make_pass
from service.compiler.provenance import Origin
from service.compiler.report import Report
from service.compiler.results import Result
from service.compiler.snapshot import Snapshots, SnapshotsState
from service.compiler.step_numbers import Numbers, NumbersState, StepNumbers
from service.errors import ExecutionFailed, IllFormedModule, JsonObject, PassFailed
from service.nouns import Limits, PassSpec, Stage, Step

Emit = Callable[[JsonObject, tuple[bytes, ...]], None]


@dataclass(frozen=True)
class _Checkpoint:
    """The module after a step, and what had been found out until then."""

    mod: IRModule
    snapshots: SnapshotsState
    numbers: NumbersState | None


@dataclass
class Pipeline:
    """Runs the steps of one Compilation and emits each when it is done. It keeps all modules where it `can_go_back`.

    `numbers` is given when they are to be checked at every step; `origins` has the node of the model of each
    variable of the imported module; `example` is told with the import. `prepare` is called before each pass, with the
    module that it will be given.
    """

    target: Any
    limits: Limits
    emit: Emit
    numbers: StepNumbers | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)
    can_go_back: bool = False
    inner: InnerPasses = field(default_factory=InnerPasses)
    example: JsonObject | None = None
    prepare: Callable[[int, PassSpec, IRModule], None] | None = None
    spent: Duration = field(default_factory=Duration)
    verifying: Duration = field(default_factory=Duration)

    def __post_init__(self) -> None:
        self._snapshots = Snapshots(self.limits.ir_bytes, self.origins, self.example)
        self._checkpoints: list[_Checkpoint] = []

    def import_step(self, mod: IRModule, duration: Duration, notes: tuple[str, ...]) -> None:
        """Emits step 0, the module as it was imported. Raises IllFormedModule, OutputTooLarge."""
        self._finish(mod, Step(0, Stage.IMPORT, None, {}, True, duration.wall_ms, duration.cpu_ms, notes=notes))

    def go_back(self, step: int) -> None:
        """Forgets all steps after `step`, as if they had not been run."""
        del self._checkpoints[step + 1 :]
        checkpoint = self._checkpoints[step]
        self._snapshots.restore(checkpoint.snapshots)
        if self.numbers is not None and checkpoint.numbers is not None:
            self.numbers.restore(checkpoint.numbers)
        self.spent, self.verifying = Duration(), Duration()

    def run(self, passes: tuple[PassSpec, ...], after: int = 0) -> IRModule:
        """The module after all `passes`, of which the first `after` have been run.

        Raises PassFailed, IllFormedModule, OutputTooLarge, ExecutionFailed; what was emitted before stays valid.
        """
        mod = self._checkpoints[-1].mod
        for index, spec in enumerate(passes[after:], start=after + 1):
            mod = self._step(mod, index, spec)
        return mod

    def _step(self, mod: IRModule, index: int, spec: PassSpec) -> IRModule:
        if self.prepare is not None:
            self.prepare(index, spec, mod)
        self.emit(begin("pass", index, spec.name), ())
        where: JsonObject = {"step": index, "pass": spec.name}
        report = Report()
        duration = Duration()
        sentence = f"Pass {spec.name!r} failed at step {index}"
        with self.inner.named(mod), boundary(PassFailed, sentence, self.limits, **where):
            rewrite: Pass = make_pass(spec)
            with self.target, duration.measure():
                after = rewrite.apply(mod, report)
            changed = not tvm_ffi.structural_equal(mod, after)
        self.spent.wall_ms += duration.wall_ms
        self.spent.cpu_ms += duration.cpu_ms
        check("pass", self.spent, self.limits, **where)
        step = Step(index, rewrite.stage, spec.name, spec.options, changed, duration.wall_ms, duration.cpu_ms)
        self._finish(after, dataclasses.replace(step, notes=tuple(report.notes), details=report.details))
        return after

    def result_step(self, index: int, result: Result) -> None:
        """Emits a result of the build as one more step; of one that has no room left, all but its text."""
        notes: tuple[str, ...] = ()
        blob = result.blob
        if not self._snapshots.fits(len(blob)):
            notes = (f"Its {len(blob)} bytes of text have no room beside those of the earlier steps.",)
            blob = b'{"text": "", "functions": [], "changes": null}'
        wall_ms, cpu_ms = round(result.duration.wall_ms, 3), round(result.duration.cpu_ms, 3)
        step = Step(index, result.stage, None, {}, True, wall_ms, cpu_ms, functions=result.functions, notes=notes)
        done = dataclasses.replace(step, details=result.details)
        self.emit({"event": "step", "step": done.to_json()}, (blob,))

    def _finish(self, mod: IRModule, step: Step) -> None:
        where: JsonObject = {"step": step.index, "pass": step.pass_name}
        sentence = f"Step {step.index} ({step.pass_name or 'the import'}) left an ill-formed module"
        with boundary(IllFormedModule, sentence, self.limits, **where):
            relax.analysis.well_formed(mod)
        snapshot = self._snapshots.take(mod, **where)
        numbers = self._check_numbers(mod, step)
        done = dataclasses.replace(
            step,
            wall_ms=round(step.wall_ms, 3),
            cpu_ms=round(step.cpu_ms, 3),
            ops=snapshot.ops,
            functions=snapshot.functions,
            figures=snapshot.figures,
            error=None if numbers is None else numbers.error,
            notes=step.notes + _said_of(numbers),
            details=step.details if numbers is None else step.details | {"numbers": numbers.details},
        )
        self.emit({"event": "step", "step": done.to_json()}, (snapshot.blob,))
        numbers_state = None if self.numbers is None else self.numbers.state()
        if not self.can_go_back:
            self._checkpoints.clear()
        self._checkpoints.append(_Checkpoint(mod, self._snapshots.state(), numbers_state))

    def _check_numbers(self, mod: IRModule, step: Step) -> Numbers | None:
        if self.numbers is None:
            return None
        self.emit(begin("verify", step.index, step.pass_name), ())
        where: JsonObject = {"step": step.index, "pass": step.pass_name}
        sentence = f"The module after step {step.index} ({step.pass_name or 'the import'}) could not be run"
        with self.verifying.measure(), boundary(ExecutionFailed, sentence, self.limits, **where):
            found = self.numbers.check(mod, step.index, step.changed)
        check("verify", self.verifying, self.limits, **where)
        return found


def _said_of(numbers: Numbers | None) -> tuple[str, ...]:
    if numbers is None or numbers.passed:
        return ()
    reasons = [f"{each['name']!r}: {each.get('reason', 'it is wrong')}" for each in numbers.details["outputs"]]
    binding = numbers.details.get("first_binding")
    where = "" if binding is None else f" The first binding that differs is {binding['binding']!r}."
    return (f"The outputs of this step differ from PyTorch's ({'; '.join(reasons)}).{where}",)


def begin(phase: str, step: int, pass_name: str | None) -> JsonObject:
    """The event that stands before each piece of work, so that the parent knows where a worker died."""
    return {"event": "begin", "phase": phase, "step": step, "pass": pass_name}
