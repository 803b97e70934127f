"""Where a symptom shows first: the step, and inside of it TVM's pass and the function that was transformed."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import IRModule, relax

from service.compiler.build import build_executable
from service.compiler.context import pass_context
from service.compiler.foreign import boundary
from service.compiler.importers import ImportedModel, find_importer
from service.compiler.inner_passes import InnerPasses, position_notes
from service.compiler.judges import CrashJudge, Judge, NumbersJudge, TimeJudge, Verdict
from service.compiler.passes import make_pass
from service.compiler.pipeline import Emit, begin
from service.compiler.report import Report
from service.compiler.target import tvm_target
from service.errors import BuildFailed, ExecutionFailed, IllFormedModule, ImportFailed, PassFailed, Problem
from service.nouns import CompileJob, PassSpec
from service.runtime.session import ENTRY, Session
from service.runtime.tvm_errors import readable_message
from service.symptoms import MAX_MESSAGE, Finding, Symptom, SymptomKind, gist

# Of the modules inside of one step, so many are looked at.
MAX_INNER = 80


def locate(job: CompileJob, symptom: Symptom, emit: Emit, only: int | None = None) -> Finding | None:
    """The first step that shows the symptom, None where none does.

    With `only` that step is looked at and the one before, which must not show it, and TVM's pass inside of it is not
    looked for where that costs runs. Emits ``begin`` before each piece of work, and ``looked`` after each step.
    """
    return _Locator(job, symptom, emit, only).run()


class _Locator:
    def __init__(self, job: CompileJob, symptom: Symptom, emit: Emit, only: int | None) -> None:
        self._job = job
        self._symptom = symptom
        self._emit = emit
        self._only = only
        self._target = tvm_target(job.recipe.target)
        self._inner = InnerPasses(position_notes(job.work_dir))
        self._references: dict[int, Session] = {}

    def run(self) -> Finding | None:
        passes = self._job.recipe.passes
        self._emit(begin("import", 0, None), ())
        with boundary(ImportFailed, "The model could not be imported", self._job.limits, step=0):
            model = find_importer(self._job.format, self._job.translator.name).import_model(self._job)
        self._emit(begin("eager", 0, None), ())
        judge = self._judge(model)
        mod = model.module
        with pass_context(self._job.recipe.context, [self._inner]):
            try:
                verdict = self._looked(judge, mod, 0, None)
            except Problem as problem:
                return self._failure(problem, 0, None)
            if verdict is not None:
                return self._finding(0, None, verdict)
            for index, spec in enumerate(passes, start=1):
                before = mod
                try:
                    mod = self._apply(mod, index, spec)
                    verdict = self._looked(judge, mod, index, spec.name)
                except Problem as problem:
                    return self._failure(problem, index, spec.name)
                if verdict is not None and judge is not None:
                    return self._inside(judge, before, index, spec, verdict)
                if index == self._only:
                    return None
            return self._build(mod, judge)

    def _is_looked_at(self, index: int) -> bool:
        return self._only is None or index in (self._only - 1, self._only)

    def _judge(self, model: ImportedModel) -> Judge | None:
        if self._symptom.kind is SymptomKind.WRONG:
            return NumbersJudge(model, self._target, self._symptom.special)
        if self._symptom.kind is SymptomKind.SLOW:
            judge = TimeJudge(model, self._target, self._symptom.factor)
            self._references = dict(self._counterparts(model, judge))
            return judge
        if self._symptom.kind is SymptomKind.CRASH and self._symptom.runs:
            return CrashJudge(model, self._target)
        return None

    def _counterparts(self, model: ImportedModel, judge: TimeJudge) -> Iterator[tuple[int, Session]]:
        """For each step what is run beside it: the module after the step of the other recipe that belongs to it."""
        pairs = counterparts(self._job.recipe.passes, self._symptom.against)
        # The last is for what the other recipe does beyond.
        pairs.append(len(self._symptom.against))
        wanted = {pairs[index] for index in range(len(pairs)) if self._is_looked_at(index)}
        found: dict[int, Session] = {}
        mod = model.module
        with pass_context(self._job.recipe.context):
            for index, spec in enumerate((None, *self._symptom.against)):
                if spec is not None:
                    mod = self._rewritten(mod, spec)
                if index in wanted:
                    found[index] = judge.session(mod)
        yield from ((index, found[pair]) for index, pair in enumerate(pairs) if pair in found)

    def _rewritten(self, mod: IRModule, spec: PassSpec) -> IRModule:
        with self._target:
            return make_pass(spec).apply(mod, Report())

    def _apply(self, mod: IRModule, index: int, spec: PassSpec) -> IRModule:
        self._emit(begin("pass", index, spec.name), ())
        sentence = f"Pass {spec.name!r} failed at step {index}"
        with self._inner.named(mod), boundary(PassFailed, sentence, self._job.limits):
            after = self._rewritten(mod, spec)
        sentence = f"Step {index} ({spec.name}) left an ill-formed module"
        try:
            with boundary(IllFormedModule, sentence, self._job.limits):
                relax.analysis.well_formed(after)
        except IllFormedModule as problem:
            problem.extensions |= self._ill_formed_inside(mod, after, spec)
            raise
        return after

    def _looked(self, judge: Judge | None, mod: IRModule, index: int, name: str | None) -> Verdict | None:
        """The verdict on the module after a step. Raises ExecutionFailed."""
        if judge is None or not self._is_looked_at(index):
            return None
        self._emit(begin("run", index, name), ())
        if isinstance(judge, TimeJudge):
            judge.reference = self._references.get(index)
        sentence = f"The module after step {index} ({name or 'the import'}) could not be run"
        with boundary(ExecutionFailed, sentence, self._job.limits):
            verdict = judge.verdict(mod)
        self._emit({"event": "looked", "step": index, "pass": name, "shows": verdict is not None}, ())
        return verdict

    def _finding(self, index: int, name: str | None, verdict: Verdict, **inside: Any) -> Finding:
        figures = dataclasses.asdict(verdict)
        message = figures.pop("message")[:MAX_MESSAGE]
        return Finding(self._symptom.kind, index, name, message, **figures, **inside)

    def _failure(self, problem: Problem, index: int, name: str | None) -> Finding:
        told = problem.extensions
        # Its words alone: the sentence before them says what the other members say.
        cause = problem.__cause__
        message = problem.detail if cause is None else readable_message(cause, MAX_MESSAGE)
        inner, function = told.get("inner_pass"), told.get("function")
        if function is None and self._only is None:
            function = self._failing_function(message)
        return Finding(SymptomKind.FAILURE, index, name, message, inner, function, problem.slug)

    def _failing_function(self, message: str) -> str | None:
        """The function with which alone the inner pass fails by the same words, where the pass needs no options."""
        name, mod = self._inner.innermost, self._inner.module
        if name is None or mod is None:
            return None
        place = name.replace("tirx.", "tirx.transform.") if name.startswith("tirx.") else f"relax.transform.{name}"
        make = tvm.get_global_func(place, allow_missing=True)
        for gvar, function in mod.functions.items() if make is not None else ():
            try:
                with self._target, pass_context(self._job.recipe.context):
                    make()(IRModule({gvar: function}, attrs=mod.attrs))
            except Exception as error:  # noqa: BLE001  the same fault again, or that the pass needs options
                if gist(readable_message(error, MAX_MESSAGE)) == gist(message):
                    return str(gvar.name_hint)
        return None

    def _build(self, mod: IRModule, judge: Judge | None) -> Finding | None:
        """After the last pass: the build fails, or what it makes shows the symptom though no module did."""
        last = len(self._job.recipe.passes) + 1
        if self._only is not None and self._only != last:
            return None
        self._emit(begin("build", last, None), ())
        try:
            with (
                self._inner.named(mod),
                boundary(BuildFailed, "The module could not be built", self._job.limits),
                pass_context(self._job.recipe.context, [self._inner]),
            ):
                executable = build_executable(mod, self._target)
            if judge is None:
                return None
            self._emit(begin("run", last, None), ())
            if isinstance(judge, TimeJudge):
                return self._slow_in_the_end(judge, mod, last)
            with boundary(ExecutionFailed, "The library could not be run", self._job.limits):
                verdict = judge.verdict(mod, executable)
        except Problem as problem:
            return self._failure(problem, last, None)
        return None if verdict is None else self._finding(last, None, verdict)

    def _slow_in_the_end(self, judge: TimeJudge, mod: IRModule, last: int) -> Finding | None:
        """Where no step is slower than its counterpart, the other recipe may do more."""
        judge.reference = self._references.get(last)
        verdict = judge.verdict(mod)
        if verdict is None:
            return None
        done = counterparts(self._job.recipe.passes, self._symptom.against)[-1]
        more = ", ".join(spec.name for spec in self._symptom.against[done:])
        message = f"{verdict.message} The other recipe goes on with: {more or 'nothing'}."
        return self._finding(last, None, dataclasses.replace(verdict, message=message))

    def _inside(self, judge: Judge, before: IRModule, index: int, spec: PassSpec, verdict: Verdict) -> Finding:
        """The finding, with TVM's pass after which the module shows it first."""
        if self._only is not None:
            return self._finding(index, spec.name, verdict)
        recorder = _ModuleRecorder(before)
        with pass_context(self._job.recipe.context, [recorder]):
            self._rewritten(before, spec)
        last = before
        for name, after in recorder.modules[:MAX_INNER]:
            if tvm_ffi.structural_equal(last, after):
                continue
            self._emit(begin("run", index, spec.name), ())
            inside = _verdict_if_it_runs(judge, after)
            if inside is not None:
                return self._finding(
                    index, spec.name, verdict, inner_pass=name, function=_changed_function(last, after)
                )
            last = after
        return self._finding(index, spec.name, verdict, function=_changed_function(before, None))

    def _ill_formed_inside(self, before: IRModule, after: IRModule, spec: PassSpec) -> dict[str, str]:
        recorder = _ModuleRecorder(before)
        with pass_context(self._job.recipe.context, [recorder]):
            self._rewritten(before, spec)
        found: dict[str, str | None] = {"function": _ill_formed_function(after)}
        for name, mod in recorder.modules:
            if not _is_well_formed(mod):
                found = {"inner_pass": name, "function": _ill_formed_function(mod)}
                break
        return {key: value for key, value in found.items() if value is not None}


@tvm.instrument.pass_instrument
class _ModuleRecorder:
    """Keeps the module after each pass of TVM that rewrites the model, and not some module of its own."""

    def __init__(self, before: IRModule) -> None:
        self._parameters = len(before[ENTRY].params)
        self.modules: list[tuple[str, IRModule]] = []

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM after each pass, nested ones too."""
        names = {str(gvar.name_hint) for gvar in mod.get_global_vars()}
        if ENTRY in names and isinstance(mod[ENTRY], relax.Function) and len(mod[ENTRY].params) == self._parameters:
            self.modules.append((str(info.name), mod))


def counterparts(passes: tuple[PassSpec, ...], others: tuple[PassSpec, ...]) -> list[int]:
    """For each step the one of the other recipe after which as much has been done: for the import, the import.

    Equal passes in the same order belong together; where some stand in the place of others, one after the other.
    """
    mine, theirs = (
        ["\0".join([spec.name, repr(sorted(spec.options.items()))]) for spec in side] for side in (passes, others)
    )
    pairs = [0]
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        for offset in range(i2 - i1):
            pairs.append(min(j1 + offset + 1, j2) if tag in ("equal", "replace") else j1)
    return pairs


def _verdict_if_it_runs(judge: Judge, mod: IRModule) -> Verdict | None:
    try:
        return judge.verdict(mod)
    except Exception:  # noqa: BLE001  a module between passes need not run: another one tells
        return None


def _changed_function(before: IRModule, after: IRModule | None) -> str | None:
    """The one function that differs; where it is one of several, unknown."""
    known = {str(gvar.name_hint): function for gvar, function in before.functions.items()}
    if after is None:
        return next(iter(known)) if len(known) == 1 else None
    changed = [
        str(gvar.name_hint)
        for gvar, function in after.functions.items()
        if str(gvar.name_hint) not in known or not tvm_ffi.structural_equal(known[str(gvar.name_hint)], function)
    ]
    return changed[0] if len(changed) == 1 else None


def _is_well_formed(mod: IRModule) -> bool:
    try:
        relax.analysis.well_formed(mod)
    except Exception:  # noqa: BLE001  that it raises is its answer
        return False
    return True


def _ill_formed_function(mod: IRModule) -> str | None:
    functions = [(str(gvar.name_hint), function) for gvar, function in mod.functions.items()]
    if len(functions) == 1:
        return functions[0][0]
    for name, function in functions:
        if isinstance(function, relax.Function) and not _is_well_formed(IRModule({name: function})):
            return name
    return None
