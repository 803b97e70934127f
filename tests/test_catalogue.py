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
from service.nouns import PassContext, PassSpec, Stage, Target, Translator
from service.patterns.request import SCHEMA, SHORT_SCHEMA

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
        (["lower", {"name": "merge", "options": {"level": 1.5}}], InvalidOption, "must be an integer"),
        (["lower", {"name": "merge", "options": {"level": True}}], InvalidOption, "must be an integer"),
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
    assert mode.check("medium").reason == "must be one of fast, slow, not 'medium'"
    assert factor.check(2) is None
    assert factor.check("2").reason == "must be a number, not '2'"


def test_an_option_may_have_structure_and_its_default_is_its_own():
    structure = {"type": "array", "items": {"type": "object", "properties": {"size": {"type": "integer"}}}}

    @dataclass(frozen=True)
    class Pass:
        parts: list[Any] = option([], "Which.", structure=structure)

    (parts,) = option_infos(Pass)
    assert parts.schema() == {**structure, "default": [], "description": "Which."}
    assert OptionInfo.from_json("parts", parts.schema()) == parts
    assert parts.check([{"size": 1}]) is None
    assert (parts.check([{"size": 1}, {"size": "2"}]).path) == "[1].size"
    assert Pass().parts is not Pass().parts


def patterned(**options: Any):
    info = PassInfo("fuse_pattern", Stage.FUSION, "F.", "F.", (OptionInfo("pattern", "array", [], "P", structure=SHORT_SCHEMA), OptionInfo("patterns", "array", [], "P", structure=SCHEMA)))  # fmt: skip
    catalogue = Catalogue({**CATALOGUE.passes, "fuse_pattern": info}, CATALOGUE.recipes, "all")
    return catalogue.recipe(["fuse", {"name": "fuse_pattern", "options": options}], Target(), 5)


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"patterns": [{"name": "a", "nodes": {"mm": {"op": "matmul", "dtype": "floaty"}}}]}, "patterns[0].nodes.mm.dtype", "must be one of"),
        ({"patterns": [{"name": "a", "chain": ["matmul", {"op": "addd"}]}]}, "patterns[0].chain[1].op", "did you mean 'add'"),
        ({"patterns": [{"name": "a", "chane": ["matmul"]}]}, "patterns[0].chane", "not known"),
        ({"patterns": 3}, "patterns", "must be an array, not 3"),
        ({}, "patterns", "must be given"),
        ({"pattern": ["dense", "plus"]}, "pattern[1]", "no operator of Relax"),
    ],
)  # fmt: skip
def test_a_flaw_inside_an_option_is_named_by_its_path(options, field, words):
    with pytest.raises(InvalidOption, match=words) as caught:
        patterned(**options)
    assert caught.value.extensions["field"] == f"passes[1].options.{field}"
    assert caught.value.extensions["pass"] == "fuse_pattern"


def test_an_entry_may_be_a_preset_which_stands_for_its_passes():
    assert recipe([{"name": "fuse", "options": {"deep": True}}, "all"]).passes == (
        PassSpec("fuse", {"deep": True}),
        *recipe("all").passes,
    )
    assert recipe([{"name": "all"}]).passes == recipe("all").passes
    assert recipe(["all"]).name is None


@pytest.mark.parametrize(
    ("passes", "problem", "words", "field"),
    [
        (["lower", "all"], PassOrder, r"`passes\[1\] \(all\)` 'fuse' works on Relax operators, but passes\[0\] 'lower'", "passes[1]"),
        (["fuse", "fuse", "fuse", "all"], InvalidField, "makes it 6 passes, with those of presets counted; the limit is 5", "passes[3]"),
        ([{"name": "all", "options": {"deep": True}}], InvalidField, "write its passes out", "passes[0].options"),
        (["al"], UnknownPass, "Did you mean 'all'", "passes[0]"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_preset_in_a_list_is_named_by_its_entry(passes, problem, words, field):
    with pytest.raises(problem, match=words) as caught:
        recipe(passes)
    assert caught.value.extensions["field"] == field


def test_an_import_that_lowers_leaves_no_operators_to_passes():
    tensorir = Translator("course", "tensorir")
    assert CATALOGUE.recipe(["merge"], Target(), 5, None, tensorir).passes == (PassSpec("merge", {"level": 2}),)
    for passes in (["fuse"], "all"):
        with pytest.raises(PassOrder, match=r"but the import .* has already lowered them\.$"):
            CATALOGUE.recipe(passes, Target(), 5, None, tensorir)


def test_the_pass_context_becomes_part_of_the_recipe():
    context = PassContext(1, ("FoldConstant",), {"tirx.disable_vectorize": True})
    assert CATALOGUE.recipe("all", Target(), 5, context).context == context
