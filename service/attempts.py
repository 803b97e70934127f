"""One attempt of a bisection: a part of a model in a compile worker of its own, which may die of it."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.errors import InternalError, JsonObject, Problem, WorkerCrashed, problem_from_json
from service.nouns import CompileJob, Limits
from service.pool import Pool, Worker, WorkerGone
from service.position import phrase, read_position, too_slow
from service.run import confinement_of
from service.symptoms import REDUCED_FILE, Finding, Fragment, Symptom, SymptomKind
from service.wire import Frame, FrameLimits
from service.work_folder import COMPILE_FILES, work_folder

MAX_EVENT_JSON = 4 << 20
MAX_CODE = 1 << 20


@dataclass(frozen=True)
class Part:
    """What the worker says of the part that it tried: numbers of nodes and outputs, distinct sizes, code."""

    nodes: int
    outputs: int
    sizes: tuple[int, ...]
    code: str
    hint: int | None

    @classmethod
    def from_json(cls, value: JsonObject) -> Part:
        """Raises KeyError, TypeError, ValueError."""
        sizes = tuple(int(size) for size in value["sizes"][:1000])
        hint = None if value["hint"] is None else int(value["hint"])
        return cls(int(value["nodes"]), int(value["outputs"]), sizes, str(value["code"])[:MAX_CODE], hint)


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt: the part, where one was asked for and made, and where the symptom showed."""

    part: Part | None = None
    finding: Finding | None = None


@dataclass
class Attempts:
    """Makes attempts at one model. `files` are what a worker may read, by name; `note` is told what it does."""

    pool: Pool
    limits: Limits
    scratch: Path
    symptom: Symptom
    note: Callable[[str], None]

    async def run(
        self,
        job: CompileJob,
        files: dict[str, Path],
        seconds: float,
        fragment: Fragment | None = None,
        only: int | None = None,
        node: str | None = None,
        keep: Callable[[Outcome, Path], None] = lambda _outcome, _file: None,
    ) -> Outcome:
        """What comes of one; `keep` gets the file of the part, which is gone afterwards.

        Raises Problem when the worker says that it cannot even look, and InternalError when it says nonsense.
        """
        writable = (*COMPILE_FILES, REDUCED_FILE)
        with work_folder(self.scratch, files, writable) as folder:
            confinement = dataclasses.replace(confinement_of(self.limits, folder), writable=writable)
            worker = await self.pool.fork("compile", confinement, FrameLimits(MAX_EVENT_JSON, 0))
            following = _Following(self.note, is_part=fragment is not None)
            body = {
                "op": "bisect",
                "job": job.to_json(),
                "symptom": self.symptom.to_json(),
                "fragment": None if fragment is None else fragment.to_json(),
                "only": only,
                "node": node,
            }
            try:
                async with asyncio.timeout(seconds):
                    await worker.send(Frame(body))
                    await following.until_end(worker)
            except TimeoutError:
                following.note_end(SymptomKind.HANG, too_slow(seconds, following.doing(folder)))
            except WorkerGone as error:
                problem = await worker.fate(phrase(following.doing(folder)))
                if not isinstance(problem, WorkerCrashed):
                    raise problem from error
                following.note_end(SymptomKind.CRASH, problem)
            finally:
                await worker.end()
            outcome = Outcome(following.part, following.finding)
            if fragment is not None and outcome.part is not None:
                await asyncio.to_thread(keep, outcome, folder / REDUCED_FILE)
            return outcome


class _Following:
    """The events of one attempt."""

    def __init__(self, note: Callable[[str], None], *, is_part: bool) -> None:
        self._note = note
        self._is_part = is_part
        self._begun: JsonObject = {"phase": "start", "step": 0, "pass": None}
        self.part: Part | None = None
        self.finding: Finding | None = None

    async def until_end(self, worker: Worker) -> None:
        """Raises WorkerGone, Problem."""
        ended = False
        while not ended:
            ended = self._understand((await worker.receive()).body)

    def doing(self, folder: Path) -> JsonObject:
        """Where the worker is, or was when it ended."""
        found = {"phase": self._begun["phase"]}
        if self._begun["pass"] is not None:
            found |= {"step": self._begun["step"], "pass": self._begun["pass"]}
        if self._begun["phase"] in ("pass", "build"):
            found |= read_position(folder)
        self._begun = {**self._begun, **found}
        return found

    def note_end(self, kind: SymptomKind, problem: Problem) -> None:
        """The worker ended without an answer: that is the finding."""
        begun = self._begun
        signal = problem.extensions.get("signal")
        self.finding = Finding(
            kind,
            begun["step"],
            begun["pass"],
            problem.detail,
            begun.get("inner_pass"),
            begun.get("function"),
            problem.slug,
            signal,
        )

    def _understand(self, body: JsonObject) -> bool:
        """Whether this was the last event. Raises the Problem that it tells, InternalError on nonsense."""
        try:
            match body["event"]:
                case "begin":
                    name = None if body["pass"] is None else str(body["pass"])[:200]
                    self._begun = {"phase": str(body["phase"])[:50], "step": int(body["step"]), "pass": name}
                    self._note(phrase({key: value for key, value in self._begun.items() if value is not None}))
                case "looked":
                    pass
                case "reduced":
                    self.part = Part.from_json(body)
                case "refused":
                    return True
                case "located":
                    self.finding = None if body["finding"] is None else Finding.from_json(body["finding"])
                    return True
                case "failed":
                    self._fail(problem_from_json(body["problem"]))
                    return True
                case _:
                    raise ValueError(str(body["event"])[:50])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InternalError(f"The compile worker sent a message that makes no sense ({error!r}).") from error
        return False

    def _fail(self, problem: Problem) -> None:
        if not self._is_part:
            raise problem
        # A part that cannot be imported or has no room is one that does not show it.
        self.part = None


def keep_file(source: Path, target: Path) -> None:
    """Copies what a worker left. Raises InternalError when it is no file with something in it."""
    try:
        status = source.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            raise InternalError("The compile worker left no reduced model.")
        shutil.copyfile(source, target, follow_symlinks=False)
        # Readable for the users that workers run as; the folder above keeps everybody else out.
        target.chmod(0o444)
    except OSError as error:
        raise InternalError(f"The reduced model could not be kept: {error.strerror}.") from error
