"""Requests are checked against the Catalogue before any worker sees them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from service.catalogue import Catalogue, OptionInfo, PassInfo, RecipeInfo, option, option_infos
from service.errors import (
    InvalidField,
    InvalidOption,
    PassOrder,
    Problem,
    UnknownField,
    UnknownOption,
    UnknownPass,
    UnknownRecipe,
)
from service.nouns import PassSpec, Stage, Target

PASSES = [
    PassInfo("fuse", Stage.FUSION, "Fuses.", "Fuses.", (OptionInfo("deep", "boolean", False, "How."),), needs=("operators",)),
    PassInfo("lower", Stage.LOWERING, "Lowers.", "Lowers.", gives=("tensorir",), takes=("operators",)),
    PassInfo("merge", Stage.FUSE_TIR, "Merges.", "Merges.", (OptionInfo("level", "integer", 2, "L", 0, 4),), ("tensorir",)),
]  # fmt: skip
CATALOGUE = Catalogue(
    {info.name: info for info in PASSES},
    {"all": RecipeInfo("all", "All.", (PassSpec("fuse", {"deep": False}), PassSpec("lower"), PassSpec("merge", {"level": 2})))},
    "all",
)  # fmt: skip


def recipe(passes: Any):
    return CATALOGUE.recipe(passes, Target(), 5)


def test_a_preset_and_the_same_passes_by_hand_are_the_same_passes():
    assert recipe("all").passes == recipe(["fuse", {"name": "lower"}, {"name": "merge", "options": {}}]).passes
    assert recipe(None) == recipe("all")


def test_an_empty_list_is_a_recipe():
    assert recipe([]).passes == ()


def test_options_are_completed_with_their_defaults():
    assert recipe([{"name": "fuse", "options": {"deep": True}}]).passes == (PassSpec("fuse", {"deep": True}),)


@pytest.mark.parametrize(
    ("passes", "problem", "words"),
    [
        ("al", UnknownRecipe, "No recipe is named 'al'"),
        (7, InvalidField, "`passes` must be"),
        (["fus"], UnknownPass, "Did you mean 'fuse'"),
        (["zzzzz"], UnknownPass, "Passes: fuse, lower, merge"),
        ([3], InvalidField, r"passes\[0\]"),
        ([{"nam": "fuse"}], UnknownField, "unknown field 'nam'"),
        ([{}], InvalidField, r"passes\[0\].name"),
        ([{"name": ["fuse"]}], InvalidField, r"passes\[0\].name"),
        ([{"name": "fuse", "options": []}], InvalidField, "must be an object"),
        ([{"name": "fuse", "options": {"deeper": 1}}], UnknownOption, "It has: deep"),
        ([{"name": "lower", "options": {"x": 1}}], UnknownOption, "It has none"),
        ([{"name": "fuse", "options": {"deep": 1}}], InvalidOption, "must be a boolean, not 1"),
        (["lower", {"name": "merge", "options": {"level": 9}}], InvalidOption, "at most 4"),
        (["lower", {"name": "merge", "options": {"level": -1}}], InvalidOption, "at least 0"),
        (["lower", {"name": "merge", "options": {"level": 1.5}}], InvalidOption, "must be a integer"),
        (["lower", {"name": "merge", "options": {"level": True}}], InvalidOption, "must be a integer"),
        (["merge"], PassOrder, "there are none at that step. Put 'lower' before it"),
        (["lower", "fuse"], PassOrder, r"passes\[0\] 'lower' has already lowered them. Move 'fuse' before it"),
        (["fuse"] * 6, InvalidField, "the limit is 5"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused_by_name(passes, problem, words):
    with pytest.raises(problem, match=words) as caught:
        recipe(passes)
    assert isinstance(caught.value, Problem)
    assert caught.value.status == 400


def test_the_catalogue_is_the_same_after_a_trip_through_json():
    assert Catalogue.from_json(CATALOGUE.to_json()) == CATALOGUE


def test_the_fields_of_a_pass_are_its_options():
    @dataclass(frozen=True)
    class Pass:
        mode: str = option("fast", "Which.", choices=("fast", "slow"))
        factor: float = option(1.0, "How much.", minimum=0)

    assert [field.name for field in dataclasses.fields(Pass)] == ["mode", "factor"]
    mode, factor = option_infos(Pass)
    assert mode.schema() == {"type": "string", "default": "fast", "description": "Which.", "enum": ["fast", "slow"]}
    assert mode.check("medium") == "must be one of fast, slow, not 'medium'"
    assert factor.check(2) is None
    assert factor.check("2") == "must be a number, not '2'"
