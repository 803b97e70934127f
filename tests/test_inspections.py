"""What the web process makes of a preflight's answer."""

from __future__ import annotations

import pytest

from service.errors import ImportFailed, InternalError
from service.inspections import _report

REPORT = {"format": "fx", "signature": None, "parameters": None, "operators": [], "unsupported": []}


def test_a_report_comes_through() -> None:
    assert _report({"event": "inspected", "report": REPORT}) == REPORT


def test_a_problem_is_raised_as_it_was() -> None:
    with pytest.raises(ImportFailed, match="not this one"):
        _report({"event": "failed", "problem": ImportFailed("not this one.").to_json()})


@pytest.mark.parametrize(
    "answer", [{}, {"event": "inspected"}, {"event": "inspected", "report": {**REPORT, "x": 1}}, {"event": "step"}]
)
def test_a_worker_that_answers_nonsense_is_not_believed(answer: dict) -> None:
    with pytest.raises(InternalError):
        _report(answer)
