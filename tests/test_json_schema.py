"""A value that a schema does not allow is refused with one sentence and the path of the place."""

from __future__ import annotations

import time

import pytest

from service.json_schema import find_flaw, join_path

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$", "title": "a lower-case word", "maxLength": 8, "minLength": 1},
        "level": {"type": "integer", "minimum": 0, "maximum": 4},
        "share": {"type": "number"},
        "kind": {"enum": ["deep", "flat"]},
        "parts": {"type": "array", "maxItems": 2, "minItems": 1, "uniqueItems": True, "items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["op"], "properties": {"op": {"type": "string"}}, "additionalProperties": False}]}},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [{"name": "a"}, {"name": "a", "level": 4, "share": 1, "kind": "deep", "parts": ["x", {"op": "y"}]}, {"name": "a", "share": 0.5}],
)  # fmt: skip
def test_what_the_schema_allows_has_no_flaw(value):
    assert find_flaw(value, SCHEMA) is None


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (3, "", "must be an object, not 3"),
        ({}, "name", "must be given"),
        ({"name": "a", "levle": 1}, "levle", "is not known; there are name, level, share, kind, parts"),
        ({"name": "A"}, "name", "must be a lower-case word, not 'A'"),
        ({"name": "a\n"}, "name", "must be a lower-case word, not 'a\\n'"),
        ({"name": "a" * 9}, "name", "must have at most 8 characters"),
        ({"name": "a", "level": 1.0}, "level", "must be an integer, not 1.0"),
        ({"name": "a", "level": True}, "level", "must be an integer, not True"),
        ({"name": "a", "level": 5}, "level", "must be at most 4, not 5"),
        ({"name": "a", "level": -1}, "level", "must be at least 0, not -1"),
        ({"name": "a", "share": True}, "share", "must be a number, not True"),
        ({"name": "a", "kind": "dep"}, "kind", "must be one of deep, flat, not 'dep'"),
        ({"name": "a", "parts": []}, "parts", "must have at least 1 entries"),
        ({"name": "a", "parts": ["x", "y", "z"]}, "parts", "must have at most 2 entries"),
        ({"name": "a", "parts": ["x", "x"]}, "parts", "has an entry twice"),
        ({"name": "a", "parts": [7]}, "parts[0]", "must be a string or an object, not 7"),
        ({"name": "a", "parts": ["x", {"op": 1}]}, "parts[1].op", "must be a string, not 1"),
        ({"name": "a", "parts": [{}]}, "parts[0].op", "must be given"),
        ({"name": "a", "parts": [{"op": "x", "opp": 1}]}, "parts[0].opp", "is not known; there are op"),
    ],
)  # fmt: skip
def test_a_flaw_has_its_path_and_its_reason(value, path, reason):
    flaw = find_flaw(value, SCHEMA)
    assert (flaw.path, flaw.reason) == (path, reason)


def test_a_name_that_is_not_known_comes_with_the_nearest():
    flaw = find_flaw({"name": "a", "levle": 1}, SCHEMA)
    assert (flaw.near, flaw.unknown) == (["level"], True)
    assert find_flaw({"name": "a", "kind": "dep"}, SCHEMA).near == ["deep"]


def test_a_long_value_is_shown_shortened():
    assert len(find_flaw({"name": ["x"] * 1000}, SCHEMA).reason) < 120


def test_paths_are_joined_by_dots_but_for_indices():
    assert join_path("passes[0].options", "", "patterns", "[1]", "nodes.mm") == "passes[0].options.patterns[1].nodes.mm"


@pytest.mark.parametrize("parts", [[1] * 300_000, ["x"] * 300_000, [["y"]] * 300_000])
def test_a_huge_array_is_refused_by_its_size_without_looking_at_its_parts(parts):
    start = time.perf_counter()
    assert find_flaw({"name": "a", "parts": parts}, SCHEMA).reason == "must have at most 2 entries"
    assert find_flaw({"name": "a", "parts": [{"op": parts}]}, SCHEMA).path == "parts[0].op"
    assert time.perf_counter() - start < 3
