"""The whole journey in a real browser: choose, look, compile, compare, link, measure, predict."""

from __future__ import annotations

import re
import subprocess
import sys
import time

from playwright.sync_api import Page, expect

from tests.conftest import ROOT


def open_compilation(open_page, compilation, rest: str = "", **options) -> Page:
    page = open_page(f"#c={compilation['id']}{rest}", **options)
    expect(page.locator(".badge")).to_have_text("succeeded")
    return page


def lit(page: Page, pane: int) -> list[str]:
    rows = page.locator(".pane").nth(pane).locator(".row.lit")
    expect(rows.first).to_be_visible()
    return rows.all_inner_texts()


def test_a_newcomer_gets_from_nothing_to_a_lit_diff_and_a_prediction(open_page, new_server):
    """As the README tells it, on a server that has just been started; five minutes are far more than it takes."""
    began = time.monotonic()
    page = open_page(base_url=new_server().url)
    page.get_by_role("button", name="Digits MLP").click()
    expect(page.locator(".inspection")).to_contain_text("9,610 parameters")
    expect(page.locator(".operators")).to_contain_text("addmm")
    page.get_by_label("Preset").select_option("course")
    page.get_by_role("button", name="Compile", exact=True).click()
    # Steps arrive while it runs; the phases say how far it is.
    expect(page.locator(".phases")).to_contain_text("Import")
    expect(page.locator(".badge")).to_have_text("succeeded")
    expect(page.locator(".steps .step")).to_have_count(8)
    # A diff by one click, lit by another.
    page.get_by_role("button", name="Difference from import to fuse_dense_add").click()
    expect(page.locator(".pane-diff .counts")).to_contain_text("+")
    expect(page.locator(".pane-diff .row-add").first).to_be_visible()
    page.locator(".pane-model .row", has_text="activated = torch.relu").click()
    expect(page.locator(".pane-diff .row.lit").first).to_be_visible()
    expect(page.locator("#lit")).to_contain_text("make_samples.py")
    # And a prediction.
    page.get_by_role("tab", name="Try it").click()
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".logits li")).to_have_count(10)
    expect(page.locator(".logits .best .index")).to_have_text("7")
    expect(page.locator(".output")).to_contain_text("PyTorch eager")
    assert time.monotonic() - began < 300


def test_all_that_the_readme_names_is_on_the_page(open_page, compiled):
    section = (ROOT / "README.md").read_text().split("## The explorer page")[1].split("\n## ")[0]
    page = open_page()
    expect(page.get_by_role("button", name="Compile", exact=True)).to_be_visible()
    page = open_compilation(open_page, compiled("digits-mlp"))
    names = set(re.findall(r"\*\*([^*]+)\*\*", section)) - {"Compile"}
    assert names == {"Graph", "Profile", "Accuracy", "Try it", "Bisect"}
    for name in names:
        expect(page.get_by_role("tab", name=name, exact=True)).to_be_visible()
    page.locator(".side-recipe > summary", has_text="Recipe").click()
    expect(page.get_by_role("button", name="Compile again")).to_be_visible()
    expect(page.locator(".step-diff").first).to_be_visible()


def test_a_line_of_source_lights_its_counterparts_down_to_the_assembly(open_page, compiled):
    compilation = compiled("digits-mlp")
    last = len(compilation["steps"]) - 1
    page = open_compilation(open_page, compilation, f"&panes=model,{last},{last + 3},{last + 4}")
    expect(page.locator(".pane").nth(3).locator(".row").first).to_be_visible()
    page.locator(".pane-model .row", has_text="logits: Tensor").click()
    expect(page.locator(".pane").nth(1).locator(".row.lit").first).to_be_visible()
    assert any("fused_matmul1_add1" in line for line in lit(page, 1))
    assert any("@__tvm_ffi_fused_matmul1_add1" in line for line in lit(page, 2))
    assert any("__tvm_ffi_fused_matmul1_add1:" in line for line in lit(page, 3))
    # And back: an instruction lights its source line.
    page.keyboard.press("Escape")
    expect(page.locator(".row.lit")).to_have_count(0)
    assembly = page.locator(".pane").nth(3)
    assembly.get_by_label("Go to function").select_option("__tvm_ffi_fused_matmul_add_relu")
    assembly.locator(".row", has_text="__tvm_ffi_fused_matmul_add_relu:").first.click()
    assert any("activated" in line for line in lit(page, 0))
    assert not any("logits" in line for line in lit(page, 0))


def test_a_line_inside_of_a_kernel_lights_what_is_made_of_it(open_page, compiled):
    """One operator of three that were fused: its node, its block, its lowered line, its instructions, and no other."""
    compilation = compiled("digits-mlp")
    last = len(compilation["steps"]) - 1
    panes = ",".join(f"{last + offset}" for offset in (0, 2, 3, 4))
    page = open_compilation(open_page, compilation, f"&panes=model,{panes}", viewport={"width": 1900, "height": 900})
    expect(page.locator(".pane").nth(4).locator(".row").first).to_be_visible()
    page.locator(".pane-model .row-node", has_text="relu").click()
    fused, lowered, llvm, assembly = (lit(page, pane) for pane in range(1, 5))
    assert any('T.sblock("relu")' in line or 'T.sblock("compute")' in line for line in fused)
    assert not any("matmul_intermediate[" in line and "+" in line for line in fused), fused
    assert any("relu" in line or "compute" in line for line in lowered)
    assert all("!dbg" in line for line in llvm)
    assert all(re.search(r"[0-9a-f]+:  ", line) for line in assembly)
    # And back, from an instruction to the one node.
    page.keyboard.press("Escape")
    expect(page.locator(".row.lit")).to_have_count(0)
    instruction = (
        page.locator(".pane").nth(4).locator(".row", has_text=assembly[0].strip().split("\n")[-1].strip()[:12]).first
    )
    instruction.locator("code").click(position={"x": 8, "y": 8})
    nodes = [each for each in lit(page, 0) if "▾" not in each]
    assert len(nodes) == 1
    assert "relu" in nodes[0]
    assert lit(page, 2) == lowered


def test_hovering_lights_and_leaving_puts_it_out(open_page, compiled):
    page = open_compilation(open_page, compiled("digits-mlp"))
    binding = page.locator(".pane").nth(1).locator(".row", has_text="relu:")
    binding.hover()
    expect(page.locator(".pane-model .row.lit").first).to_be_visible()
    page.locator(".logo").hover()
    expect(page.locator(".row.lit")).to_have_count(0)


def test_the_address_restores_the_exact_view(open_page, compiled):
    compilation = compiled("digits-mlp")
    page = open_compilation(open_page, compilation)
    page.locator(".pane").nth(2).get_by_label("Step", exact=True).select_option(label="2  annotate_tir_op_pattern")
    page.locator(".pane").nth(2).locator(".row", has_text="def main").click()
    address = page.evaluate("location.hash")
    assert "panes=model,0,2" in address
    other = open_page(address)
    present = other.locator(".pane").nth(2).locator(".row.present")
    expect(present).to_contain_text("def main")
    assert other.evaluate("location.hash") == address


def test_a_pane_is_where_it_was_after_another_tab_or_address(open_page, compiled):
    compilation = compiled("digits-mlp")
    page = open_compilation(open_page, compilation, "&panes=model,5")
    code = page.locator(".code")
    expect(code.locator(".row").first).to_be_visible()
    place = "document.querySelector('.code').scrollTop"
    page.evaluate(f"{place} = 400")
    page.wait_for_function(f"{place} === 400")
    page.get_by_role("tab", name="Accuracy").click()
    expect(page.locator(".accuracy-view")).to_be_visible()
    page.get_by_role("tab", name="IR").click()
    page.wait_for_function(f"{place} === 400")
    expect(code.locator(".row[data-row='25']")).to_be_in_viewport()
    page.goto(f"/#c={compilation['id']}&tab=try")
    expect(page.get_by_role("button", name="Predict")).to_be_visible()
    page.goto(f"/#c={compilation['id']}&panes=model,5")
    expect(code.locator(".row.present")).to_be_in_viewport()


def test_back_and_forward_go_through_the_views(open_page, compiled):
    page = open_compilation(open_page, compiled("digits-mlp"))
    page.get_by_role("tab", name="Accuracy").click()
    expect(page.locator(".accuracy-view")).to_contain_text("within tolerance")
    page.go_back()
    expect(page.get_by_role("tab", name="IR")).to_have_attribute("aria-selected", "true")
    page.go_forward()
    expect(page.get_by_role("tab", name="Accuracy")).to_have_attribute("aria-selected", "true")


def test_steps_that_changed_nothing_can_be_hidden(open_page, compiled):
    page = open_compilation(open_page, compiled("digits-mlp", ["dead_code_elimination", "generic"]))
    expect(page.locator(".step.same")).not_to_have_count(0)
    shown = page.locator(".steps .step").count()
    page.get_by_label("hide what changed nothing").check()
    expect(page.locator(".step.same")).to_have_count(0)
    assert page.locator(".steps .step").count() < shown
    expect(page.locator(".rail-summary")).to_contain_text("hidden")


def test_text_is_searched_folded_and_copied(open_page, compiled):
    page = open_compilation(open_page, compiled("digits-mlp"), permissions=["clipboard-read", "clipboard-write"])
    pane = page.locator(".pane").nth(2)
    pane.get_by_role("button", name="Search in this text").click()
    pane.get_by_label("Search in this text").last.fill("t.axis.remap")
    expect(pane.locator(".search-bar")).to_contain_text(re.compile(r"1 of \d+ lines"))
    expect(pane.locator("mark.word").first).to_be_visible()
    pane.get_by_role("button", name="Close the search").click()
    before = pane.locator(".code").get_attribute("data-rows")
    pane.get_by_role("button", name="Fold all functions").click()
    assert int(pane.locator(".code").get_attribute("data-rows")) < int(before)
    pane.get_by_role("button", name="Copy the text").click()
    expect(page.locator("#announcement")).to_contain_text("Copied")
    assert "@I.ir_module" in page.evaluate("navigator.clipboard.readText()")


def test_the_recipe_is_edited_and_compiled_again_beside_the_first(open_page, compiled):
    page = open_compilation(open_page, compiled("lenet"))
    page.locator(".side-recipe > summary").click()
    page.get_by_label("Add a pass").fill("topological")
    page.get_by_role("option", name=re.compile("topological_sort")).click()
    page.get_by_role("button", name="Options of topological_sort").click()
    page.get_by_label("order", exact=True).select_option("breadth-first")
    for _ in range(5):
        page.get_by_role("button", name="Move topological_sort up").click()
    expect(page.locator(".passes li").first).to_contain_text("topological_sort")
    page.get_by_role("button", name="Remove fuse_tir").click()
    page.get_by_role("button", name="Compile again").click()
    expect(page.locator(".badge")).to_have_text("succeeded")
    expect(page.locator(".steps .step-name").nth(1)).to_have_text("topological_sort")
    # The Compilation before is B now: in profile, accuracy and diff.
    expect(page.get_by_label("Compare with another")).not_to_have_value("")
    page.get_by_role("tab", name="Profile").click()
    expect(page.locator(".figures")).to_contain_text("B's time over A's")
    expect(page.locator("svg.chart .dot-a").first).to_be_attached()
    expect(page.locator("svg.chart .dot-b").first).to_be_attached()
    page.get_by_role("tab", name="Accuracy").click()
    expect(page.locator(".dot-b").first).to_be_attached()


def test_a_pass_is_dragged_to_another_place(open_page):
    page = open_page()
    expect(page.locator(".passes li").nth(1)).to_be_visible()
    first = page.locator(".passes li").first.locator(".pass-name").inner_text()
    handle = page.locator(".handle").first.bounding_box()
    target = page.locator(".passes li").nth(2).bounding_box()
    page.mouse.move(handle["x"] + 5, handle["y"] + 5)
    page.mouse.down()
    page.mouse.move(target["x"] + 9, target["y"] + target["height"] - 3, steps=6)
    page.mouse.up()
    expect(page.locator(".passes li").nth(2)).to_contain_text(first)


def test_the_graph_opens_modules_and_finds_a_node_in_the_ir(open_page, compiled):
    page = open_compilation(open_page, compiled("tiny-transformer"), "&tab=graph")
    rows = page.get_by_label("Nodes of the graph")
    page.get_by_role("button", name="Close all").click()
    norm = rows.locator(".row b").get_by_text("norm1", exact=True)
    expect(norm).to_have_count(0)
    rows.locator(".row b").get_by_text("blocks", exact=True).click()
    rows.locator(".row b").get_by_text("0", exact=True).click()
    expect(norm).to_be_visible()
    page.get_by_role("button", name="Open all").click()
    rows.locator(".row", has_text="layer_norm").first.click()
    expect(page.locator(".graph-about")).to_contain_text("make_samples.py")
    for colouring in ("by time", "by change", "by error"):
        page.get_by_label("Colour of the nodes").select_option(colouring)
        expect(page.locator(".legend")).not_to_be_empty()
    page.get_by_role("button", name="Show in the IR").click()
    expect(page.locator(".pane.active .row.lit", has_text="def layer_norm")).to_be_visible()


def test_a_running_compilation_is_cancelled(open_page):
    page = open_page()
    page.get_by_role("button", name="Tiny transformer").click()
    page.get_by_label("Preset").select_option("none")
    page.locator(".advanced summary").click()
    page.get_by_label("Threads").fill("3")
    page.get_by_label("Threads").press("Tab")
    page.get_by_role("button", name="Compile", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".badge")).to_have_text("cancelled")
    expect(page.locator(".notice")).to_contain_text("compile again")


def test_a_file_that_is_no_model_is_explained(open_page):
    page = open_page()
    page.set_input_files("#model-file", {"name": "notes.pt2", "mimeType": "text/plain", "buffer": b"no model at all"})
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("Next:")
    expect(problem.get_by_role("link", name="What this problem means")).to_be_visible()
    expect(page.get_by_role("button", name="Compile", exact=True)).to_be_disabled()


def test_a_failed_compilation_shows_its_problem_its_steps_and_its_repro(open_page, server, model_file):
    found = server.compile(model_file("wide_concat"), {"passes": "generic"}).json()
    page = open_page(f"#c={found['compilation']}")
    expect(page.locator(".badge")).to_have_text("failed")
    expect(page.locator(".phase.failed")).to_contain_text("Passes")
    expect(page.locator(".step-open").first).to_contain_text("import")
    expect(page.locator(".code .row").first).to_be_visible()
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text(found["title"])
    expect(problem).to_contain_text("Next:")
    expect(problem.get_by_role("link", name="Repro (zip)")).to_have_attribute(
        "href", f"/compile/{found['compilation']}/repro.zip"
    )


def test_operators_that_cannot_be_compiled_are_named_before_and_after(open_page, model_file):
    page = open_page()
    page.set_input_files("#model-file", str(model_file("unsupported")))
    expect(page.locator(".inspection .problem")).to_contain_text("erfcx")
    page.get_by_role("button", name="Compile", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("Next:")
    expect(page.get_by_role("alert").first).to_contain_text("erfcx")


def test_a_compilation_that_is_gone_is_explained(open_page):
    page = open_page("#c=00000000000000000000000000000000")
    expect(page.get_by_role("alert")).to_contain_text("404")
    page.get_by_role("button", name="Start anew").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_the_snippets_work_as_they_stand(open_page, compiled, server, tmp_path):
    page = open_compilation(open_page, compiled("digits-mlp"), "&tab=try")
    expect(page.locator(".snippet-tabs")).to_contain_text("tritonclient")
    expect(page.locator(".snippet-tabs button").nth(0)).to_have_text("curl")
    expect(page.locator(".snippet-tabs button").nth(1)).to_have_text("Python")
    languages = page.locator(".snippet-tabs button").all_inner_texts()
    for language in [name for name in languages if name in ("Python", "tritonclient")]:
        page.locator(".snippet-tabs").get_by_role("button", name=language, exact=True).click()
        code = page.locator(".snippets pre").inner_text()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "10" in done.stdout
