"""Tuning records come from workers that may be hostile: what is none is refused."""

from __future__ import annotations

import math

import pytest

from service.tuning import Tuning, TuningProgress, TuningRecord, records_used

GOOD = {"key": "dense-0123456789abcdef", "choice": {"rows": 6, "vectors": 2}, "gain": 1.25}
PROGRESS = TuningProgress(3.0, 1.5, 4, 1, 9, 1.25).to_json()


def test_a_record_is_read_as_it_was_written():
    record = TuningRecord.from_json(GOOD)
    assert record.to_json() == GOOD
    tuning = Tuning(2.5, (record,))
    assert Tuning.from_json(tuning.to_json()) == tuning
    assert tuning.by_key() == {GOOD["key"]: record}


@pytest.mark.parametrize(
    "change",
    [
        {"key": "../../etc"}, {"key": 5}, {"key": "dense-0123456789abcdef\n"}, {"key": "x" * 10**6}, {"choice": None},
        {"choice": [1]}, {"choice": {"rows": True}}, {"choice": {"rows": -1}}, {"choice": {"rows": 10**9}},
        {"choice": {"rows": 2.0}}, {"choice": {"Rows;": 1}}, {"choice": {f"a{'b' * i}": 1 for i in range(20)}},
        {"gain": math.nan}, {"gain": math.inf}, {"gain": 0}, {"gain": -1}, {"gain": "1"}, {"gain": None}, {"gain": True},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_record_is_refused(change):
    with pytest.raises((TypeError, ValueError)):
        TuningRecord.from_json(GOOD | change)


@pytest.mark.parametrize("name", sorted(PROGRESS))
@pytest.mark.parametrize("value", [None, "1", -1, math.nan, math.inf, True, [], 1e300], ids=str)
def test_progress_that_makes_no_sense_is_refused(name, value):
    assert TuningProgress.from_json(PROGRESS).to_json() == PROGRESS
    with pytest.raises((TypeError, ValueError)):
        TuningProgress.from_json(PROGRESS | {name: value})


def test_the_records_of_a_step_are_those_of_its_tuned_kernels():
    entries = [{"tuned": False}, {"tuned": True, **GOOD}, {"tuned": True, "key": "no"}, {"tuned": 1, **GOOD}, None, 7]
    assert records_used(entries) == (TuningRecord.from_json(GOOD),)
