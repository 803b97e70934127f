"""Symptoms, findings and fragments through JSON, and which findings are the same fault."""

from __future__ import annotations

import dataclasses
import json

import pytest

from service.nouns import PassSpec
from service.symptoms import Finding, Fragment, Symptom, SymptomKind, gist

FINDING = Finding(SymptomKind.FAILURE, 2, "fuse_ops", "no relu in main of 12", "FuseOps", "main", "pass-failed")


def through_json(value):
    return json.loads(json.dumps(value))


def test_all_come_back_from_json():
    symptom = Symptom(SymptomKind.SLOW, factor=2.0, against=(PassSpec("fuse_ops", {"fuse_opt_level": 1}),))
    assert Symptom.from_json(through_json(symptom.to_json())) == symptom
    assert Finding.from_json(through_json(FINDING.to_json())) == FINDING
    for fragment in (Fragment(), Fragment((1, 2), (0,), ((8, 2),))):
        assert Fragment.from_json(through_json(fragment.to_json())) == fragment


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"message": "no relu in main of 3"}, True),
        ({"function": "other"}, True),
        ({"inner_pass": None}, True),
        ({"message": "something else"}, False),
        ({"inner_pass": "FuseTIR"}, False),
        ({"step": 3}, False),
        ({"pass_name": "fuse_tir"}, False),
        ({"problem": "ill-formed-module"}, False),
        ({"kind": SymptomKind.CRASH}, False),
    ],
)
def test_the_same_fault_is_told_from_another(change, same):
    assert FINDING.is_like(dataclasses.replace(FINDING, **change)) is same


def test_wrong_numbers_are_like_any_other_wrong_numbers_of_that_step():
    wrong = Finding(SymptomKind.WRONG, 2, "fuse_ops", "Output 'a' differs: 3 of 4.", "FuseOps", node="relu")
    assert wrong.is_like(Finding(SymptomKind.WRONG, 2, "fuse_ops", "Output 'b' differs: it is NaN."))


def test_the_gist_leaves_out_what_a_smaller_model_changes():
    first = "Check failed (4 == 5): lv12 of 'main' at 0x7fff has shape [3, 4] in fused_add_relu3"
    second = "Check failed (1 == 2): lv0 of 'f' at 0x1 has shape [1] in fused_add"
    assert gist(first) == gist(second)
    assert gist(first) != gist("Another check failed")
