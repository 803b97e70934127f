"""Differences of IR: what a pass did, not how it numbered its variables."""

from __future__ import annotations

from service.ir_diff import difference

BEFORE = """\
@R.function
def main(x: R.Tensor((1, 4), dtype="float32")) -> R.Tensor((1, 2), dtype="float32"):
    with R.dataflow():
        lv: R.Tensor((4, 2), dtype="float32") = R.permute_dims(metadata["ir.GenericConst"][0], axes=[1, 0])
        lv1: R.Tensor((1, 2), dtype="float32") = R.matmul(x, lv, out_dtype="float32")
        lv2: R.Tensor((1, 2), dtype="float32") = R.add(lv1, metadata["ir.GenericConst"][1])
        gv: R.Tensor((1, 2), dtype="float32") = R.nn.relu(lv2)
        R.output(gv)
    return gv
"""


def snapshot(**functions: str):
    return {"functions": [{"name": name, "text": text} for name, text in functions.items()]}


def diff(before: str, after: str):
    return difference(snapshot(main=before), snapshot(main=after), ("a", "b"))


def test_the_same_text_has_no_difference():
    result = diff(BEFORE, BEFORE)
    assert result.is_empty
    assert result.text == ""
    assert result.same == ("main",)


def test_renumbered_variables_and_constants_are_no_difference():
    renumbered = BEFORE.replace("lv2", "lv9").replace("lv1", "lv5").replace("lv:", "w:").replace(" lv,", " w,")
    renumbered = renumbered.replace('Const"][0]', 'Const"][5]')
    assert renumbered != BEFORE
    assert diff(BEFORE, renumbered).is_empty


def test_an_operator_that_is_replaced_is_the_only_change():
    result = diff(BEFORE, BEFORE.replace("R.nn.relu(lv2)", "R.tanh(lv2)"))
    assert [change.to_json()["kind"] for change in result.changes] == ["removed", "added"]
    assert "relu" in (result.changes[0].before or "")
    assert "tanh" in (result.changes[1].after or "")
    assert result.changed == ("main",)


def test_a_removed_binding_leaves_the_rest_alone_though_all_are_renumbered():
    after = BEFORE.replace(
        '        lv: R.Tensor((4, 2), dtype="float32") = R.permute_dims(metadata["ir.GenericConst"][0], axes=[1, 0])\n',
        "",
    )
    after = (
        after.replace("R.matmul(x, lv,", 'R.matmul(x, metadata["ir.GenericConst"][0],')
        .replace("lv1", "lv")
        .replace("lv2", "lv1")
    )
    result = diff(BEFORE, after)
    lines = [line for line in result.text.splitlines() if line[0] in "+-" and line[:3] not in ("---", "+++")]
    assert len(lines) == 3
    assert sum("permute_dims" in line for line in lines) == 1
    assert sum("matmul" in line for line in lines) == 2


def test_a_binding_with_other_operands_is_a_change():
    result = diff(BEFORE, BEFORE.replace("R.matmul(x, lv,", "R.matmul(lv, lv,"))
    assert [change.to_json()["kind"] for change in result.changes] == ["changed"]


def test_functions_are_added_removed_and_recognised_under_another_name():
    kernel = "@T.prim_func\ndef add(a: T.handle):\n    pass\n"
    result = difference(
        snapshot(main=BEFORE, add=kernel, gone="@R.function\ndef gone():\n    x\n"),
        snapshot(
            main=BEFORE, fused_add=kernel.replace("def add", "def fused_add"), new="@R.function\ndef new():\n    y\n"
        ),
        ("a", "b"),
    )
    assert result.renamed == (("add", "fused_add"),)
    assert result.added == ("new",)
    assert result.removed == ("gone",)
    assert not result.is_empty


def test_thousands_of_bindings_are_compared_in_seconds():
    lines = "".join(f"        lv{i + 1}: T = R.add(lv{i}, lv{i})\n" for i in range(5000))
    text = f"@R.function\ndef main(lv0: T):\n    with R.dataflow():\n{lines}    return lv5000\n"
    result = diff(text, text.replace("R.add(lv2500, lv2500)", "R.multiply(lv2500, lv2500)"))
    assert len(result.changes) == 2
