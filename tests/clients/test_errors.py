"""relaxd.errors against the server's tree, which is the one truth about slugs."""

from __future__ import annotations

import pickle

import pytest
from relaxd import errors

import service.serving_errors  # noqa: F401  its problems count too
from service.errors import CompilationProblem, RequestProblem, all_problems

from .fake_relaxd import problem


def branch_of_the_server(leaf: type) -> type[errors.ProblemError]:
    if issubclass(leaf, RequestProblem):
        return errors.RequestError
    return errors.CompilationError if issubclass(leaf, CompilationProblem) else errors.ServerError


def test_every_problem_of_the_server_has_a_class_of_the_same_name_in_the_same_branch() -> None:
    ours = {slug: (cls.__name__, cls.__base__) for slug, cls in errors.slugs().items()}
    assert ours == {leaf.slug: (leaf.__name__, branch_of_the_server(leaf)) for leaf in all_problems()}


def test_a_problem_document_becomes_the_class_of_its_slug_with_its_members() -> None:
    error = errors.problem_error(problem("pass-failed", 422, step=3, instance="/requests/7", compilation="c1"))
    assert type(error) is errors.PassFailed
    assert (error.slug, error.status, error.detail) == ("pass-failed", 422, "The pass-failed detail.")
    assert (error.instance, error.compilation) == ("/requests/7", "c1")
    assert error.extensions == {"step": 3, "compilation": "c1"}


def test_an_unknown_slug_is_a_problem_error_and_of_no_branch() -> None:
    error = errors.problem_error(problem("teapot", 418))
    assert type(error) is errors.ProblemError
    assert (error.slug, error.status) == ("teapot", 418)


def test_the_text_says_what_happened_the_slug_and_which_compilation() -> None:
    error = errors.problem_error(problem("build-failed", 422, compilation="c1"))
    assert str(error) == "The build-failed detail. (build-failed, 422, compilation c1)"


@pytest.mark.parametrize(
    "error", [errors.problem_error(problem("pass-failed", 422, step=3)), errors.StillRunning("c1", 5.0)]
)
def test_an_error_survives_pickling_as_it_must_between_processes(error: errors.RelaxdError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_network_errors_are_also_the_builtin_ones_that_callers_already_catch() -> None:
    assert issubclass(errors.ServerUnreachable, ConnectionError)
    assert issubclass(errors.AnswerTimeout, TimeoutError)
    assert issubclass(errors.StillRunning, TimeoutError)
