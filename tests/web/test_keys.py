"""The page on a server that asks for API keys."""

from __future__ import annotations

from playwright.sync_api import expect

from service.keys import Keys


def test_the_page_asks_for_a_key_and_compiles_with_it(open_page, new_server):
    guarded = new_server()
    key = Keys(guarded.data).create("alice", ("compile", "infer"))
    guarded.stop()
    guarded = new_server()
    page = open_page(base_url=guarded.url)
    expect(page.get_by_role("dialog", name="This server asks for an API key")).to_be_visible()
    page.get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Digits MLP").click()
    expect(page.locator(".signature")).to_be_visible()
    page.get_by_role("button", name="Compile", exact=True).click()
    # Steps come as events, which need the key as well.
    expect(page.locator(".badge")).to_have_text("succeeded")
    with page.expect_download() as download:
        page.get_by_role("link", name="repro").click()
    assert download.value.suggested_filename.endswith("repro.zip")
    page.get_by_role("tab", name="Try it").click()
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".logits li")).to_have_count(10)


def test_a_key_without_the_scope_is_explained(open_page, new_server):
    guarded = new_server()
    key = Keys(guarded.data).create("reader", ("read",))
    guarded.stop()
    guarded = new_server()
    page = open_page(base_url=guarded.url)
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Use it").click()
    page.get_by_role("button", name="Digits MLP").click()
    expect(page.get_by_role("alert")).to_contain_text("scope")
