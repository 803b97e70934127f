"""The page of a Compilation whose names and texts come from a stranger, and one that is too large."""

from __future__ import annotations

from service import html_report
from service.html_report import render
from service.nouns import Limits, ModelFormat, PassSpec, Recipe, Stage, State, Step, Verify
from service.records import Compilation, Model

EVIL = "<script>alert(1)</script>"


def compilation(steps: int = 1, **fields) -> Compilation:
    made = tuple(
        Step(index, Stage.FUSION if index else Stage.IMPORT, EVIL if index else None, {}, True, 1.0, 1.0, notes=(EVIL,))
        for index in range(steps)
    )
    model = Model("0" * 64, ModelFormat.EXPORTED_PROGRAM, 10, EVIL)
    recipe = Recipe((PassSpec(EVIL),))
    return Compilation("c0ffee", State.FAILED, "now", model, recipe, Verify.ARTIFACT, steps=made, **fields)


def snapshot(text: str) -> dict:
    return {"text": text, "functions": [{"name": "main", "text": text}], "changes": None}


def test_what_a_stranger_wrote_is_text():
    problem = {"type": "/problems/pass-failed", "title": "t", "status": 422, "detail": EVIL, "pass": EVIL}
    page = render(compilation(2, problem=problem), iter([snapshot(EVIL), snapshot(EVIL * 2)]), Limits())
    assert EVIL not in page
    assert "&lt;script&gt;" in page


def test_what_is_left_out_is_said(monkeypatch):
    monkeypatch.setattr(html_report, "STEP_CHARACTERS", 1000)
    monkeypatch.setattr(html_report, "ALL_CHARACTERS", 1500)
    page = render(compilation(3), iter([snapshot("a = 1\n" * 1000) for _ in range(3)]), Limits())
    assert "the first 1,000 characters of 6,000 are shown" in page
    assert "the first 500 characters of 6,000 are shown" in page
    assert "none of 6,000 are shown" in page
    assert "/ir/fusion?id=c0ffee&amp;step=2" in page
    assert len(page) < 60_000


def test_texts_that_take_too_long_to_compare_are_not(monkeypatch):
    monkeypatch.setattr(html_report, "COMPARED_CHARACTERS", 100)
    page = render(compilation(2), iter([snapshot("a" * 90), snapshot("b" * 90)]), Limits())
    assert "too long to compare" in page
