"""Dimensions that are expressions over symbols."""

from __future__ import annotations

import pytest

from service.dimensions import evaluated, solved, symbols_of


def test_an_expression_is_evaluated_where_all_symbols_are_known() -> None:
    sizes = {"h": 4, "w": 7}
    assert evaluated("2*h", sizes) == 8
    assert evaluated("h*w - 1", sizes) == 27
    assert evaluated("(w//2) + Max(1, h % 3)", sizes) == 4
    assert evaluated("Mod(w, h)", sizes) == 3


@pytest.mark.parametrize("text", ["2*k", "h//0", "h.x", "__import__('os')", "2 *", "(" * 300, "f(h, h)"])
def test_what_cannot_be_told_is_none(text: str) -> None:
    assert evaluated(text, {"h": 4}) is None


def test_a_linear_expression_is_solved_for_its_symbol() -> None:
    assert solved("2*h", "h", 8, {}) == 4
    assert solved("2*h", "h", 9, {}) is None
    assert solved("n + 1", "n", 9, {}) == 8
    assert solved("h*w", "h", 21, {"w": 7}) == 3
    assert solved("h*h", "h", 9, {}) is None


def test_functions_are_no_symbols() -> None:
    assert symbols_of("2*h + Max(1, w)") == {"h", "w"}
    assert symbols_of("2 *") == frozenset()
