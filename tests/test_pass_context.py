"""What of TVM's PassContext may be set, and how everything else is refused."""

from __future__ import annotations

import pytest

from service import pass_context
from service.errors import InvalidField, UnknownField
from service.nouns import PassContext


def test_nothing_given_is_tvms_default():
    assert pass_context.parse(None) == pass_context.parse({}) == PassContext(2, (), {})


def test_what_is_given_is_taken_in_one_order():
    given = {"opt_level": 3, "disabled": ["tirx.UnrollLoop", "tirx.RemoveNoOp"], "config": {"tirx.UnrollLoop": {"auto_max_step": 8}}}  # fmt: skip
    assert pass_context.parse(given) == PassContext(3, ("tirx.RemoveNoOp", "tirx.UnrollLoop"), given["config"])


@pytest.mark.parametrize(
    ("given", "problem", "field", "words"),
    [
        ([], InvalidField, "pass_context", "must be an object"),
        ({"level": 1}, UnknownField, "pass_context.level", "there are opt_level, disabled, config"),
        ({"opt_level": 9}, InvalidField, "pass_context.opt_level", "at most 4"),
        ({"disabled": ["LegalizeOps"]}, InvalidField, "pass_context.disabled[0]", "one of CanonicalizeRelaxBindings, "),
        ({"config": {"tirx.s_tir.ldg32": True}}, UnknownField, "pass_context.config.tirx.s_tir.ldg32", "relax.FuseOps.max_depth, "),
        ({"config": {"tirx.add_lower_pass": []}}, UnknownField, "pass_context.config.tirx.add_lower_pass", "is not known"),
        ({"config": {"tirx.UnrollLoop": {"auto_max_step": -1}}}, InvalidField, "pass_context.config.tirx.UnrollLoop.auto_max_step", "at least 0"),
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_refused_by_its_path(given, problem, field, words):
    with pytest.raises(problem, match=words) as caught:
        pass_context.parse(given)
    assert caught.value.extensions["field"] == field
