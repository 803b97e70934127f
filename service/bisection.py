"""Bisections: from a Compilation that goes wrong to the step, TVM's pass inside of it, and a small model.

One at a time, each attempt in a compile worker of its own. They live as long as the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from service.attempts import Attempts, Outcome, Part, keep_file
from service.diagnosis import INPUTS_FILE, MODEL_FILE, job_of
from service.errors import (
    DeadlineExceeded,
    InternalError,
    Interrupted,
    JsonObject,
    NoSymptom,
    NotFound,
    Overloaded,
    Problem,
)
from service.leftovers import remove
from service.narrowing import narrow
from service.nouns import Limits, ModelFormat, State
from service.pool import Pool
from service.records import Compilation, now
from service.symptoms import REDUCED_FILE, Finding, Fragment, Symptom, SymptomKind
from service.work_folder import work_folder

log = logging.getLogger(__name__)

MAX_KEPT = 32
MAX_WAITING = 8
MAX_LOG = 200
ATTEMPT_S = 60.0


@dataclass(frozen=True)
class Bounds:
    """How many attempts a bisection may make, and how many seconds it may take."""

    attempts: int = 200
    seconds: float = 600.0


@dataclass
class Bisection:
    """One bisection as it stands. `found` is None until the step is known, `part` until a smaller model is."""

    compilation: str
    symptom: Symptom
    against: str | None
    bounds: Bounds
    created_at: str
    state: State = State.QUEUED
    started_at: str | None = None
    ended_at: str | None = None
    doing: str | None = None
    found: Finding | None = None
    part: Part | None = None
    nodes_before: int | None = None
    notes: list[str] = field(default_factory=list)
    attempts: int = 0
    seconds: float = 0.0
    tried: list[JsonObject] = field(default_factory=list)
    problem: Problem | None = None

    def __post_init__(self) -> None:
        self.ended = asyncio.Event()
        self.resources = contextlib.ExitStack()
        self.reduced: Path | None = None

    def to_json(self) -> JsonObject:
        href = f"/compile/{self.compilation}/bisect"
        reduced: JsonObject | None = None
        if self.part is not None and self.reduced is not None:
            reduced = {
                "nodes": self.part.nodes,
                "nodes_before": self.nodes_before,
                "outputs": self.part.outputs,
                "code": self.part.code,
                "href": f"{href}/model.pt2",
            }
        return {
            "compilation": self.compilation,
            "href": href,
            "state": self.state.value,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "symptom": self.symptom.kind.value,
            "against": self.against,
            "doing": self.doing,
            "found": None if self.found is None else self.found.to_json(),
            "reduced": reduced,
            "notes": list(self.notes),
            "attempts": self.attempts,
            "seconds": round(self.seconds, 3),
            "limits": dataclasses.asdict(self.bounds),
            "tried": list(self.tried),
            "problem": None if self.problem is None else self.problem.to_json(),
        }


class Bisections:
    """The bisections of this server, one a Compilation. Every method belongs to the event loop's thread."""

    def __init__(self, pool: Pool, limits: Limits, scratch: Path) -> None:
        self._pool = pool
        self._limits = limits
        self._scratch = scratch
        self._one = asyncio.Lock()
        self._kept: dict[str, Bisection] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    def start(
        self, compilation: Compilation, uploaded: dict[str, Path], symptom: Symptom, against: str | None, bounds: Bounds
    ) -> Bisection:
        """A new bisection, in place of an earlier one that has ended; the one that runs where it is the same.

        Raises Overloaded.
        """
        key = compilation.id
        known = self._kept.get(key)
        if known is not None and not known.state.ended and (known.symptom, known.bounds) == (symptom, bounds):
            return known
        if known is not None and not known.state.ended:
            raise Overloaded(f"Another bisection of {key!r} runs. Wait for it, or DELETE it first.", retry_after_s=5)
        if len(self._tasks) >= MAX_WAITING:
            raise Overloaded(
                f"{len(self._tasks)} bisections are running or waiting, the limit is {MAX_WAITING}. Send it later.",
                limit=MAX_WAITING,
                retry_after_s=5,
            )
        self._drop(key)
        bisection = self._kept[key] = Bisection(key, symptom, against, bounds, now())
        while len(self._kept) > MAX_KEPT:
            self._drop(next(each for each, kept in self._kept.items() if kept.state.ended or kept is bisection))
        # From here on it does not matter whether the Compilation is deleted.
        folder = bisection.resources.enter_context(work_folder(self._scratch, uploaded, ()))
        search = Search(self._pool, self._limits, self._scratch, bisection, compilation, folder)
        task = asyncio.create_task(self._run(bisection, search), name=f"bisection-{key}")
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._conclude(bisection))
        return bisection

    async def _run(self, bisection: Bisection, search: Search) -> None:
        async with self._one:
            bisection.state, bisection.started_at = State.RUNNING, now()
            started = time.monotonic()
            try:
                async with asyncio.timeout(bisection.bounds.seconds):
                    await search.run()
                bisection.state = State.SUCCEEDED
            except (TimeoutError, _EnoughAttempts):
                limit = f"{bisection.bounds.attempts} attempts and {bisection.bounds.seconds:g} s"
                said = f"It was stopped at its limit of {limit}; `attempts` and `seconds` of the request set another."
                bisection.notes.append(said)
                bisection.state = State.SUCCEEDED if bisection.found is not None else State.FAILED
                if bisection.found is None:
                    bisection.problem = DeadlineExceeded(said, limit_s=bisection.bounds.seconds)
            except Problem as problem:
                bisection.state, bisection.problem = State.FAILED, problem
            except Exception:
                log.exception("the bisection of %s failed in a way that was not foreseen", bisection.compilation)
                bisection.state, bisection.problem = (
                    State.FAILED,
                    InternalError("The server met an error; its log has it."),
                )
            finally:
                bisection.seconds = time.monotonic() - started

    def _conclude(self, bisection: Bisection) -> None:
        if not bisection.state.ended:
            bisection.state = State.CANCELLED
            if self._closing:
                bisection.problem = Interrupted("The server was stopped meanwhile. Send it again.")
        bisection.ended_at, bisection.doing = now(), None
        self._tasks.pop(bisection.compilation, None)
        bisection.ended.set()
        # Of its files only what can be asked for is kept.
        if bisection.reduced is None:
            bisection.resources.close()
        else:
            remove(*(file for file in bisection.reduced.parent.iterdir() if file != bisection.reduced))

    def get(self, key: str) -> Bisection:
        """As it stands now. Raises NotFound."""
        if key not in self._kept:
            raise NotFound(
                f"There is no bisection of {key!r}: none was asked for since the server started. POST makes one.",
                path=f"/compile/{key}/bisect",
            )
        return self._kept[key]

    async def wait(self, key: str, seconds: float) -> Bisection:
        """The bisection when it has ended or the time is over. Raises NotFound."""
        bisection = self.get(key)
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bisection.ended.wait(), seconds)
        return bisection

    async def delete(self, key: str) -> None:
        """Cancels one that has not ended, forgets one that has. Raises NotFound."""
        bisection = self.get(key)
        if key in self._tasks:
            self._tasks[key].cancel()
            await bisection.ended.wait()
            return
        self._drop(key)

    async def forget(self, key: str) -> None:
        """Cancels and forgets that of a Compilation that is deleted, if there is one."""
        if key in self._tasks:
            await self.delete(key)
        self._drop(key)

    def _drop(self, key: str) -> None:
        bisection = self._kept.pop(key, None)
        if bisection is not None:
            bisection.reduced = None
            bisection.resources.close()

    async def close(self) -> None:
        """Stops what runs."""
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _EnoughAttempts(Exception):
    """As many were made as may be."""


class Search:
    """The work of one bisection."""

    def __init__(
        self, pool: Pool, limits: Limits, scratch: Path, bisection: Bisection, compilation: Compilation, folder: Path
    ) -> None:
        self._bisection = bisection
        self._folder = folder
        self._attempts = Attempts(pool, limits, scratch, bisection.symptom, self._note)
        self._files = {name: folder / name for name in (MODEL_FILE, INPUTS_FILE) if (folder / name).exists()}
        self._job = job_of(compilation, limits, INPUTS_FILE in self._files)
        self._numbers = itertools.count()
        self._attempt_s = min(limits.compile_s, ATTEMPT_S)
        self._locate_s = limits.compile_s if bisection.symptom.kind is SymptomKind.HANG else bisection.bounds.seconds

    def _note(self, doing: str) -> None:
        self._bisection.doing = f"attempt {self._bisection.attempts}: {doing}"

    async def run(self) -> None:
        """Finds the step, then a smaller model. Raises NoSymptom, Problem."""
        bisection = self._bisection
        bisection.attempts += 1
        outcome = await self._attempts.run(self._job, self._files, self._locate_s)
        bisection.found = outcome.finding
        self._log("where it shows", outcome, outcome.finding is not None)
        if outcome.finding is None:
            raise NoSymptom(
                f"The compilation was run again and nothing was found that is {_WORDS[bisection.symptom.kind]}.",
                symptom=bisection.symptom.kind.value,
            )
        if outcome.finding.kind is SymptomKind.HANG:
            bisection.notes.append(
                "What does not end is not reduced: each attempt would take all of the limit of time."
            )
            return
        part = await self._try("the whole model as a static program", Fragment(), node=outcome.finding.node)
        if part is None:
            bisection.notes.append(
                "It is not reduced: written as a program of fixed sizes in decomposed operators, the model does not "
                "show it."
            )
            return
        bisection.nodes_before = part.nodes
        await self._reduce(part)

    async def _reduce(self, part: Part) -> None:
        async def with_nodes(positions: tuple[int, ...]) -> int | None:
            found = await self._try(_listed("nodes", positions), Fragment(nodes=positions))
            return None if found is None else found.nodes

        async def with_outputs(positions: tuple[int, ...]) -> int | None:
            found = await self._try(_listed("outputs", positions), Fragment(outputs=positions))
            return None if found is None else found.outputs

        await narrow(part.nodes, with_nodes, part.hint)
        before = self._part
        if before.outputs > 1:
            await narrow(before.outputs, with_outputs)
        if self._part.nodes > 1 and self._part != before:
            await narrow(self._part.nodes, with_nodes)
        await self._reduce_sizes()

    @property
    def _part(self) -> Part:
        if self._bisection.part is None:
            raise InternalError("A part of the model is reduced before there is one.")
        return self._bisection.part

    async def _reduce_sizes(self) -> None:
        """Each size as 1, else as 2, else halved for as long as that shows it, the largest first."""
        refused: set[int] = set()
        while True:
            size = next((each for each in self._part.sizes if each not in refused), None)
            if size is None:
                return
            for smaller in dict.fromkeys((1, 2, size // 2)):
                if not 0 < smaller < size:
                    continue
                found = await self._try(f"{size} as {smaller}", Fragment(sizes=((size, smaller),)))
                if found is not None:
                    break
            else:
                refused.add(size)

    async def _try(self, what: str, fragment: Fragment, node: str | None = None) -> Part | None:
        """The part, kept as what is reduced further, where it shows the same as was found; else None."""
        bisection, target = self._bisection, self._bisection.found
        if target is None or bisection.attempts >= bisection.bounds.attempts:
            raise _EnoughAttempts
        bisection.attempts += 1
        bisection.doing = f"attempt {bisection.attempts}: {what}"
        kept = self._folder / f"{next(self._numbers)}-{REDUCED_FILE}"

        def shows(outcome: Outcome) -> bool:
            return outcome.finding is not None and outcome.finding.is_like(target)

        def keep(outcome: Outcome, file: Path) -> None:
            if shows(outcome):
                keep_file(file, kept)

        outcome = await self._attempts.run(self._job, self._files, self._attempt_s, fragment, target.step, node, keep)
        self._log(what, outcome, shows(outcome))
        if not shows(outcome) or outcome.part is None or not kept.exists():
            return None
        self._adopt(outcome.part, kept)
        return outcome.part

    def _adopt(self, part: Part, file: Path) -> None:
        bisection = self._bisection
        earlier, bisection.reduced, bisection.part = bisection.reduced, file, part
        if earlier is not None:
            remove(earlier)
        self._files = {MODEL_FILE: file}
        self._job = dataclasses.replace(self._job, format=ModelFormat.EXPORTED_PROGRAM, inputs=None, inputs_path=None)

    def _log(self, what: str, outcome: Outcome, shows: bool) -> None:
        tried = self._bisection.tried
        if len(tried) < MAX_LOG:
            nodes = None if outcome.part is None else outcome.part.nodes
            tried.append({"attempt": self._bisection.attempts, "tried": what, "shows": shows, "nodes": nodes})


_WORDS = {
    SymptomKind.FAILURE: "a failure",
    SymptomKind.CRASH: "a crash",
    SymptomKind.HANG: "without an end",
    SymptomKind.WRONG: "wrong",
    SymptomKind.SLOW: "slower",
}


def _listed(what: str, positions: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, positions[:20]))
    return f"{what} {shown}" + (f" and {len(positions) - 20} more" if len(positions) > 20 else "")
