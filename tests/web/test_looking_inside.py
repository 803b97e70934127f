"""Inside of a step, beside PyTorch's recorded answer, beside another Compilation, and where it goes wrong."""

from __future__ import annotations

import json

from playwright.sync_api import Route, expect


def test_the_passes_of_tvm_inside_of_a_step_are_shown_and_compared(open_page, compiled):
    page = open_page(f"#c={compiled('digits-mlp')['id']}")
    page.get_by_role("button", name="Passes of TVM inside of fuse_ops").click()
    inside = page.get_by_role("list", name="Passes inside of fuse_ops")
    expect(inside.locator(".inner-open").first).to_contain_text("FuseOps")
    inside.locator(".inner-open:enabled").first.click()
    pane = page.locator(".pane.active")
    expect(pane.get_by_label("Step", exact=True).locator("option:checked")).to_contain_text("fuse_ops \u203a FuseOps")
    expect(pane.locator(".code")).to_contain_text("def main(")
    address = page.evaluate("location.hash")
    assert "4.0" in address
    inside.get_by_role("button", name="Difference that FuseOps made").click()
    expect(page.locator(".pane-diff .counts")).to_contain_text("+")
    # The address leads there again, also on a page that has not asked for it.
    other = open_page(address)
    expect(other.locator(".pane.active .code")).to_contain_text("def main(")


def test_the_passes_inside_of_the_build_are_many_and_most_change_nothing(open_page, compiled):
    page = open_page(f"#c={compiled('digits-mlp')['id']}")
    page.get_by_role("button", name="Passes of TVM inside of VM bytecode").click()
    expect(page.locator(".inner li").nth(20)).to_be_attached()
    expect(page.locator(".inner .same .tag").first).to_have_text("no change")
    page.get_by_role("button", name="Passes of TVM inside of VM bytecode").click()
    expect(page.locator(".inner")).to_have_count(0)


def test_the_answer_stands_beside_pytorch_s_recorded_one(open_page, compiled):
    page = open_page(f"#c={compiled('digits-mlp')['id']}&tab=try")
    page.locator(".input-form select").select_option("recorded")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".beside h5").nth(1)).to_have_text("PyTorch eager, recorded")
    best = page.locator(".beside .best .index")
    expect(best).to_have_count(2)
    assert best.nth(0).inner_text() == best.nth(1).inner_text()
    expect(page.locator(".output")).to_contain_text("is the largest difference (allowed:")


def test_an_image_that_is_dropped_is_the_input(open_page, compiled):
    page = open_page(f"#c={compiled('lenet')['id']}&tab=try")
    page.locator(".input-form select").select_option("image")
    page.evaluate(
        """async () => {
            const canvas = new OffscreenCanvas(56, 56), pen = canvas.getContext("2d");
            pen.fillStyle = "#fff"; pen.fillRect(24, 6, 8, 44);
            const file = new File([await canvas.convertToBlob()], "one.png", { type: "image/png" });
            const dropped = new DataTransfer(); dropped.items.add(file);
            document.querySelector(".input-area .drop").dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator(".input-area")).to_contain_text("scaled to 28 \u00d7 28")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".logits .best .index")).to_have_text("1")


def test_the_graphs_of_two_compilations_are_compared(open_page, compiled):
    one, other = compiled("digits-mlp"), compiled("digits-mlp", "none")
    page = open_page(f"#c={one['id']}&b={other['id']}&tab=graph")
    page.get_by_label("Colour of the nodes").select_option("other")
    expect(page.locator(".legend")).to_contain_text("what B does not have")
    expect(page.locator(".graph-side .sign").first).to_contain_text("+")
    page.get_by_label("Step of the graph").select_option("b0")
    expect(page.locator(".legend")).to_contain_text("what A does not have")
    assert "graph=b0" in page.evaluate("location.hash")


def test_a_bisection_runs_and_says_when_nothing_is_wrong(open_page, compiled):
    page = open_page(f"#c={compiled('digits-mlp')['id']}&tab=bisect")
    expect(page.locator(".bisect-view .empty")).to_contain_text("one by one")
    page.get_by_role("button", name="Bisect", exact=True).click()
    # It succeeded, so there is nothing to look for unless it is named.
    expect(page.locator(".bisect-view").get_by_role("alert")).to_contain_text("Next:")


FOUND = {
    "state": "running", "doing": "leaving out nodes", "attempts": 5, "seconds": 2.5, "limits": {"attempts": 200, "seconds": 600},
    "found": {"kind": "crash", "step": 1, "pass": "legalize_ops", "inner_pass": "LegalizeOps", "function": "main", "message": "Died of SIGSEGV.",
              "node": None, "binding": None, "signal": "SIGSEGV", "before_ms": None, "after_ms": None},
    "reduced": {"nodes": 1, "nodes_before": 4, "outputs": 1, "code": "class Reduced: ...", "href": "/compile/x/bisect/model.pt2"},
    "notes": [], "tried": [{"attempt": 1, "tried": "all of it", "shows": True, "nodes": 4}], "problem": None,
}  # fmt: skip


def test_what_a_bisection_found_is_shown_while_it_goes_on_and_leads_to_the_ir(open_page, server, model_file):
    failed = server.compile(model_file("wide_concat"), {"passes": "generic"}).json()["compilation"]
    page = open_page("")
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.method)
        ended = len(asked) > 3
        route.fulfill(
            status=200,
            content_type="application/json",
            body=json.dumps({**FOUND, "state": "succeeded" if ended else "running"}),
        )

    page.route("**/compile/*/bisect", answer)
    page.goto(f"/#c={failed}")
    page.get_by_role("button", name="Find the pass at fault").click()
    expect(page.get_by_role("progressbar", name="Attempts")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    expect(page.locator(".finding h3")).to_have_text("It dies at 1 legalize_ops, in TVM's LegalizeOps")
    expect(page.locator(".bisect-view")).to_contain_text("A smaller model that shows it: 1 of 4 nodes")
    expect(page.get_by_role("button", name="Bisect", exact=True)).to_be_enabled()
    page.get_by_role("button", name="Show the IR before it").click()
    expect(page.locator(".pane.active .code .row").first).to_be_visible()
