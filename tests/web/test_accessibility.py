"""axe finds nothing serious: every view, both widths, light and dark; and no view is wider than its window."""

from __future__ import annotations

from importlib.resources import files

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import NARROW, WIDE

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
VIEWS = {
    "ir": ".code .row",
    "graph": ".graph-side .row",
    "profile": ".kernels tbody tr",
    "accuracy": ".accuracy-view table",
    "try": ".try-view .primary",
    "bisect": ".bisect-view .empty",
}


def serious(page: Page) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']} ({each['impact']}): {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:4]
    ]


def overflows(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth + 1"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_nothing_serious_in_any_view(open_page, compiled, viewport, scheme):
    page = open_page("", viewport=viewport, color_scheme=scheme)
    page.get_by_role("button", name="LeNet").click()
    expect(page.locator(".signature")).to_be_visible()
    page.get_by_label("Add a pass").focus()
    found = {"start": serious(page)}
    assert not overflows(page)
    page.keyboard.press("Escape")
    page.locator(".advanced summary").click()
    found["advanced"] = serious(page)
    compilation = compiled("digits-mlp")
    for view, ready in VIEWS.items():
        page.goto(f"/#c={compilation['id']}&tab={view}")
        expect(page.locator(ready).first).to_be_visible()
        found[view] = serious(page)
        assert not overflows(page), view
    page.goto(f"/#c={compilation['id']}")
    page.get_by_role("button", name="Passes of TVM inside of fuse_ops").click()
    expect(page.locator(".inner-open").first).to_be_visible()
    found["inside"] = serious(page)
    page.goto(f"/#c={compilation['id']}&panes=model,2~4")
    expect(page.locator(".pane-diff .row").first).to_be_visible()
    found["diff"] = serious(page)
    page.goto("/#c=00000000000000000000000000000000")
    expect(page.get_by_role("alert")).to_be_visible()
    found["problem"] = serious(page)
    page.keyboard.press("?")
    found["help"] = serious(page)
    wrong = [f"{view}: {entry}" for view, entries in found.items() for entry in entries]
    assert not wrong, "\n".join(wrong)


def test_the_theme_can_be_chosen_against_the_system(open_page):
    page = open_page("", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: light").click()
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()


def test_nothing_jumps_while_a_compilation_opens(open_page, compiled):
    page = open_page()
    page.add_init_script(
        "window.moved = 0; new PerformanceObserver(list => list.getEntries().forEach(each => { if (!each.hadRecentInput) window.moved += each.value; }))"
        ".observe({type: 'layout-shift', buffered: true})"
    )
    page.goto(f"/#c={compiled('digits-mlp')['id']}")
    page.reload()
    expect(page.locator(".code .row").first).to_be_visible()
    page.wait_for_timeout(500)
    assert page.evaluate("window.moved") < 0.1
