"""The tree of errors: complete, documented, and the same after a trip through JSON."""

from __future__ import annotations

import re

import pytest

from service import errors, serving_errors
from service.errors import InternalError, Problem, RequestProblem, all_problems, nearest, problem_from_json

LEAVES = all_problems()


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    drawn = re.findall(r"[├└]── (\w+) +(\d{3}) ([a-z-]+)", f"{errors.__doc__}{serving_errors.__doc__}")
    assert sorted(drawn) == sorted((leaf.__name__, str(leaf.status), leaf.slug) for leaf in LEAVES)


def test_slugs_and_titles_are_unique():
    assert len({leaf.slug for leaf in LEAVES}) == len(LEAVES)
    assert len({leaf.title for leaf in LEAVES}) == len(LEAVES)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.slug)
def test_every_problem_has_a_documented_remedy_and_a_fitting_status(leaf):
    assert leaf.__doc__
    assert len(leaf.__doc__) > 40
    assert (400 <= leaf.status < 500) == (not issubclass(leaf, errors.ServerProblem))
    if issubclass(leaf, errors.CompilationProblem):
        assert leaf.status == 422


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.slug)
def test_a_problem_read_back_from_json_is_the_same(leaf):
    problem = leaf("What happened.", step=3, **{"pass": "fuse_tir"}, nothing=None)
    again = problem_from_json(problem.to_json())
    assert type(again) is leaf
    assert again.to_json() == problem.to_json()
    assert again.extensions == {"step": 3, "pass": "fuse_tir"}


def test_a_problem_of_a_newer_version_is_still_readable():
    again = problem_from_json({"type": "/problems/from-the-future", "title": "?", "status": 422, "detail": "Hm."})
    assert isinstance(again, InternalError)
    assert again.detail == "Hm."


def test_inner_nodes_are_not_answered():
    assert Problem not in LEAVES
    assert RequestProblem not in LEAVES


def test_nearest_offers_the_most_similar_name_first():
    assert nearest("fuse_dense_ad", ["fuse_tir", "fuse_dense_add", "fuse_ops"])[0] == "fuse_dense_add"
    assert nearest("zzz", ["fuse_tir"]) == []
