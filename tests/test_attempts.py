"""One attempt of a bisection, by workers that follow a script: what they may say, and how they may end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.attempts import Attempts, Outcome
from service.errors import ImportFailed, InternalError
from service.nouns import CompileJob, Limits, ModelFormat, Recipe, Verify
from service.symptoms import Fragment, Symptom, SymptomKind
from service.wire import Frame
from tests.fakes import GONE, FakePool

JOB = CompileJob("model", ModelFormat.EXPORTED_PROGRAM, Recipe(()), Verify.ARTIFACT, None, None, ".", Limits())
BEGIN = {"event": "begin", "phase": "pass", "step": 2, "pass": "fuse_ops"}
REDUCED = {"event": "reduced", "nodes": 3, "outputs": 1, "sizes": [8, 2], "code": "import torch", "hint": None}
FINDING = {
    "kind": "failure", "step": 2, "pass": "fuse_ops", "message": "m", "inner_pass": "FuseOps", "function": None,
    "problem": "pass-failed", "signal": None, "node": None, "binding": None, "before_ms": None, "after_ms": None,
}  # fmt: skip
LOCATED = {"event": "located", "finding": FINDING}


def attempt(scratch: Path, *answers: Any, fragment: Fragment | None = None, write: bytes = b"", seconds: float = 5.0):
    """The outcome, what was noted, and the file that was kept."""
    noted: list[str] = []
    kept: list[bytes] = []
    model = scratch / "uploaded"
    model.write_bytes(b"model")

    async def script(_frame: Frame) -> list[Any]:
        if write:
            (pool.work_dir / "reduced.pt2").write_bytes(write)
        return [answer if isinstance(answer, BaseException) else Frame(answer) for answer in answers]

    pool = FakePool(script)

    def keep(_outcome: Outcome, file: Path) -> None:
        kept.append(file.read_bytes())

    attempts = Attempts(pool, Limits(), scratch, Symptom(SymptomKind.FAILURE), noted.append)
    outcome = asyncio.run(attempts.run(JOB, {"model": model}, seconds, fragment, keep=keep))
    return outcome, noted, kept


def test_what_a_worker_finds_comes_back_and_is_noted_on_the_way(tmp_path):
    outcome, noted, kept = attempt(tmp_path, BEGIN, LOCATED)
    assert outcome.finding is not None
    assert outcome.finding.inner_pass == "FuseOps"
    assert noted == ["in step 2 (pass 'fuse_ops')"]
    assert not kept


def test_a_part_is_kept_even_where_the_worker_dies_of_it(tmp_path):
    outcome, _, kept = attempt(tmp_path, REDUCED, BEGIN, GONE, fragment=Fragment(), write=b"archive")
    assert kept == [b"archive"]
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.signal) == (SymptomKind.CRASH, "SIGSEGV")
    assert (outcome.finding.step, outcome.finding.pass_name) == (2, "fuse_ops")


def test_a_worker_that_does_not_end_is_a_finding(tmp_path):
    outcome, _, _ = attempt(tmp_path, BEGIN, seconds=0.05)
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.pass_name) == (SymptomKind.HANG, "fuse_ops")


def test_a_part_that_pytorch_does_not_take_is_no_finding(tmp_path):
    outcome, _, kept = attempt(tmp_path, {"event": "refused", "reason": "r"}, fragment=Fragment())
    assert outcome == Outcome()
    assert not kept


def test_a_part_that_cannot_be_imported_is_no_finding_but_the_model_itself_is_a_problem(tmp_path):
    failed = {"event": "failed", "problem": ImportFailed("No.").to_json()}
    outcome, _, kept = attempt(tmp_path, REDUCED, failed, fragment=Fragment(), write=b"archive")
    assert outcome == Outcome()
    assert not kept
    with pytest.raises(ImportFailed):
        attempt(tmp_path, failed)


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"event": "no such"},
        {"event": "begin"},
        {"event": "begin", "phase": "pass", "step": "two", "pass": None},
        {"event": "reduced", "nodes": 1},
        {**REDUCED, "sizes": ["large"]},
        {"event": "located"},
        {"event": "located", "finding": {}},
        {"event": "located", "finding": {**FINDING, "kind": "strange"}},
        {"event": "located", "finding": [1]},
        {"event": "failed", "problem": 3},
    ],
    ids=str,
)
def test_nonsense_is_told_as_such(tmp_path, nonsense):
    with pytest.raises(InternalError, match="makes no sense"):
        attempt(tmp_path, nonsense)


def test_long_texts_of_a_worker_are_cut(tmp_path):
    long = {**FINDING, "message": "m" * 10_000, "function": "f" * 10_000}
    outcome, _, _ = attempt(tmp_path, {"event": "located", "finding": long})
    assert outcome.finding is not None
    assert len(outcome.finding.message) == 1000
    assert len(outcome.finding.function or "") == 200
