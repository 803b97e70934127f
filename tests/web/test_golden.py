"""Screenshots beside the ones that were kept. Compared by their structure: another machine has other fonts.

``RELAXD_UPDATE_GOLDEN=1`` keeps the present ones, to be looked at before they are committed.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import NARROW, WIDE

GOLDEN = Path(__file__).parent / "golden"
# Pixels of a cell, over which colours are averaged: about a line of text.
CELL = 20
# A cell is another one when its colour is this far away, of 255; and a screenshot when this share of its cells is.
FAR, SHARE = 14, 0.08
# Where the parts of the page are; fonts move their edges by some lines at most.
PARTS = [
    ".top", ".title", ".side", ".phases", ".rail", ".steps .step", ".tab-row", ".pane", ".pane-head", ".code", ".row.lit",
    ".graph-canvas", ".graph-side", ".start-head", ".drop", ".sample", ".signature", ".operators", ".passes li", ".primary", ".pad",
    ".logits li", ".snippets", ".status",
]  # fmt: skip
MOVED = 48

WHERE = """parts => Object.fromEntries(parts.map(part => {
    const seen = [...document.querySelectorAll(part)].filter(each => each.checkVisibility({ visibilityProperty: true }));
    const box = seen[0]?.getBoundingClientRect();
    return [part, box ? { many: seen.length, at: [box.x, box.y, box.width, box.height].map(Math.round) } : null];
}))"""

COARSE = """async ([one, other, cell]) => {
    const read = async png => {
        const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
        const [width, height] = [Math.round(bitmap.width / cell), Math.round(bitmap.height / cell)];
        const pen = new OffscreenCanvas(width, height).getContext("2d");
        pen.imageSmoothingQuality = "high";
        pen.drawImage(bitmap, 0, 0, width, height);
        return { size: `${bitmap.width}x${bitmap.height}`, data: pen.getImageData(0, 0, width, height).data };
    };
    const [a, b] = [await read(one), await read(other)];
    if (a.size !== b.size) return [];
    const far = [];
    for (let at = 0; at < a.data.length; at += 4)
        far.push(Math.max(...[0, 1, 2].map(channel => Math.abs(a.data[at + channel] - b.data[at + channel]))));
    return far;
}"""


def difference(page: Page, one: bytes, other: bytes) -> float:
    """The share of cells that are far from each other; 1 for another size."""
    blank = page.context.new_page()
    far = blank.evaluate(COARSE, [base64.b64encode(png).decode() for png in (one, other)] + [CELL])
    blank.close()
    return sum(each > FAR for each in far) / len(far) if far else 1.0


def moved(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The parts that came, went, or are elsewhere. How many there are may differ by what fits beside a taller font."""
    found = []
    for part, old in before.items():
        new = after[part]
        if (old is None) != (new is None):
            found.append(f"{part}: {old} -> {new}")
        elif old is not None:
            far = max(abs(one - other) for one, other in zip(old["at"], new["at"], strict=True))
            if far > MOVED or not 0.5 <= new["many"] / old["many"] <= 2:
                found.append(f"{part}: {old} -> {new}")
    return found


def start(page: Page, compilation: str) -> None:
    page.goto("/")
    page.get_by_role("button", name="LeNet").click()
    expect(page.locator(".signature")).to_be_visible()
    # What others compiled on this server is no part of the picture.
    page.evaluate("document.querySelector('.recent').remove()")


def lit(page: Page, compilation: str) -> None:
    page.goto(f"/#c={compilation}&panes=model,0,5")
    expect(page.locator(".pane .code .row").first).to_be_visible()
    page.locator(".pane-model .row-node", has_text="relu").first.click()
    expect(page.locator(".code .row.lit").first).to_be_visible()


def narrow(page: Page, compilation: str) -> None:
    page.goto(f"/#c={compilation}&panes=0,model&at=0")
    expect(page.locator(".pane .code .row").first).to_be_visible()


def diff(page: Page, compilation: str) -> None:
    page.goto(f"/#c={compilation}&panes=model,4~5")
    expect(page.locator(".pane-diff .row").first).to_be_visible()


def graph(page: Page, compilation: str) -> None:
    page.goto(f"/#c={compilation}&tab=graph")
    expect(page.locator(".graph-side .row").first).to_be_visible()


def answer(page: Page, compilation: str) -> None:
    page.goto(f"/#c={compilation}&tab=try")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".logits li")).to_have_count(10)


VIEWS: dict[str, tuple[Callable[[Page, str], None], dict[str, int], str]] = {
    "start-light": (start, WIDE, "light"),
    "start-narrow-dark": (start, NARROW, "dark"),
    "lit-light": (lit, WIDE, "light"),
    "lit-dark": (lit, WIDE, "dark"),
    "steps-narrow-light": (narrow, NARROW, "light"),
    "diff-dark": (diff, WIDE, "dark"),
    "graph-light": (graph, WIDE, "light"),
    "answer-light": (answer, WIDE, "light"),
}


def screenshot(page: Page) -> bytes:
    page.mouse.move(1, 1)
    page.evaluate("document.fonts.ready")
    return page.screenshot(animations="disabled", caret="hide")


@pytest.mark.parametrize("name", VIEWS)
def test_the_view_looks_as_it_did(open_page, compiled, name: str, tmp_path: Path) -> None:
    prepare, viewport, scheme = VIEWS[name]
    page = open_page("", viewport=viewport, color_scheme=scheme)
    prepare(page, compiled("lenet")["id"])
    seen = screenshot(page)
    kept = GOLDEN / f"{name}.png"
    where = page.evaluate(WHERE, PARTS)
    if os.environ.get("RELAXD_UPDATE_GOLDEN"):
        kept.write_bytes(seen)
        kept.with_suffix(".json").write_text(json.dumps(where, indent=1) + "\n")
    assert moved(json.loads(kept.with_suffix(".json").read_text()), where) == []
    (tmp_path / f"{name}.png").write_bytes(seen)
    far = difference(page, seen, kept.read_bytes())
    assert far < SHARE, f"{far:.1%} of it looks otherwise: {tmp_path / name}.png beside {kept}"


def test_what_a_person_would_notice_is_noticed_and_other_fonts_are_not(open_page, compiled) -> None:
    page = open_page("", viewport=WIDE, color_scheme="light")
    lit(page, compiled("lenet")["id"])
    before, where = screenshot(page), page.evaluate(WHERE, PARTS)
    page.evaluate("document.body.style.fontFamily = 'serif'")
    assert difference(page, before, screenshot(page)) < SHARE
    assert moved(where, page.evaluate(WHERE, PARTS)) == []
    for broken in (".side", ".tab-row", ".pane-head", ".row.lit"):
        hide(page, broken)
        assert any(part.startswith(broken) for part in moved(where, page.evaluate(WHERE, PARTS)))
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert difference(page, before, screenshot(page)) > 0.5


def hide(page: Page, which: str) -> None:
    page.evaluate(
        "which => document.querySelectorAll(which).forEach(each => (each.style.visibility = 'hidden'))", which
    )


def test_every_kept_screenshot_has_its_view() -> None:
    assert {path.stem for path in GOLDEN.glob("*.png")} == set(VIEWS)
