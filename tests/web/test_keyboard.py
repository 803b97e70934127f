"""The journey without a pointer."""

from __future__ import annotations

from playwright.sync_api import Page, expect


def tab_to(page: Page, selector: str, most: int = 90) -> None:
    """Presses Tab until an element that matches has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached with Tab")


def test_the_whole_journey_with_the_keyboard_only(open_page):
    page = open_page()
    expect(page.locator(".passes li").first).to_be_visible()
    tab_to(page, ".sample[data-file='lenet.pt2']")
    page.keyboard.press("Enter")
    expect(page.locator(".inspection .signature")).to_be_visible()
    # A pass is found, added, moved and removed.
    tab_to(page, "[aria-label='Add a pass']")
    page.keyboard.type("common")
    page.keyboard.press("Enter")
    expect(page.locator(".passes li").last).to_contain_text("eliminate_common_subexpr")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator(".passes li").nth(-2)).to_contain_text("eliminate_common_subexpr")
    page.keyboard.press("Delete")
    expect(page.locator(".passes")).not_to_contain_text("eliminate_common_subexpr")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".badge")).to_have_text("succeeded")
    # Steps, a difference, lines.
    tab_to(page, ".step-open")
    for _ in range(page.locator(".steps .step-name").all_inner_texts().index("legalize_ops")):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".step.active").first).to_contain_text("legalize_ops")
    page.keyboard.press("d")
    expect(page.locator(".pane-diff")).to_be_visible()
    tab_to(page, ".pane-model .rows")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".pane-diff .row.lit").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".row.lit")).to_have_count(0)
    # Tabs, the graph's list, a prediction.
    page.keyboard.press("2")
    expect(page.locator(".graph-view")).to_be_visible()
    tab_to(page, ".graph-side .rows")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("5")
    tab_to(page, ".try-view .primary")
    page.keyboard.press("Enter")
    expect(page.locator(".logits")).to_be_visible()


def test_lines_are_walked_searched_and_folded(open_page, compiled):
    page = open_page(f"#c={compiled('digits-mlp')['id']}")
    code = page.locator(".pane").nth(1).locator(".code")
    expect(code.locator(".row").first).to_be_visible()
    code.focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    active = code.get_attribute("aria-activedescendant")
    assert active.endswith("-3")
    expect(page.locator(f"#{active}")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("End")
    expect(code.locator(".row.present")).to_be_in_viewport()
    page.keyboard.press("/")
    page.keyboard.type("relu")
    page.keyboard.press("Enter")
    expect(page.locator(".search-bar:visible")).to_contain_text("of")
    page.keyboard.press("Escape")
    expect(code).to_be_focused()
    rows = int(code.get_attribute("data-rows"))
    page.keyboard.press(" ")
    assert int(code.get_attribute("data-rows")) < rows


def test_help_lists_the_keys_and_closes(open_page):
    page = open_page()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
