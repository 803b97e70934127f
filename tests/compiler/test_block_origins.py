"""Blocks of fused kernels, and the nodes that they come from."""

from __future__ import annotations

from service.compiler.block_origins import BlockOrigins

CALLEE = 'def {0}():\n    for i in range(4):\n        with T.sblock("{0}"):\n            x\n'
FUSED = """\
def group():
    y = T.sblock_alloc_buffer((4,))
    for i in range(4):
        with T.sblock("multiply"):
            a
    for i in range(4):
        for j in range(4):
            with T.sblock("add"):
                b
"""


def kernel(name: str, text: str) -> dict[str, str]:
    return {"name": name, "kind": "tensorir", "text": text}


def fused() -> BlockOrigins:
    blocks = BlockOrigins()
    blocks.follow([kernel(name, CALLEE.format(name)) for name in ("add", "multiply")], {})
    calls = [("multiply", frozenset({0})), ("add", frozenset({1, 2}))]
    blocks.follow([kernel("group", FUSED)], {"group": calls})
    return blocks


def test_blocks_have_the_origins_of_the_calls_in_their_order() -> None:
    assert fused().of(kernel("group", FUSED)) == [
        {"name": "multiply", "first_line": 3, "last_line": 5, "origins": [0]},
        {"name": "add", "first_line": 6, "last_line": 9, "origins": [1, 2]},
    ]


def test_a_kernel_with_the_same_blocks_goes_on_and_another_does_not() -> None:
    blocks = fused()
    before = blocks.state()
    blocks.follow([kernel("group", FUSED.replace("range(4)", "range(8)"))], {})
    assert len(blocks.of(kernel("group", FUSED))) == 2
    blocks.follow([kernel("group", CALLEE.format("other"))], {})
    assert blocks.of(kernel("group", CALLEE.format("other"))) == []
    blocks.restore(before)
    assert len(blocks.of(kernel("group", FUSED))) == 2


def test_loops_that_hold_two_blocks_belong_to_neither() -> None:
    text = FUSED.replace("    for i in range(4):\n        for j", "        for j").replace("a\n", "a\n")
    blocks = BlockOrigins()
    blocks.follow([kernel(name, CALLEE.format(name)) for name in ("add", "multiply")], {})
    calls = [("multiply", frozenset({0})), ("add", frozenset({1}))]
    blocks.follow([kernel("group", text)], {"group": calls})
    assert [(each["first_line"], each["last_line"]) for each in blocks.of(kernel("group", text))] == [(4, 5), (6, 8)]


def test_a_group_whose_blocks_are_not_those_of_its_calls_is_not_guessed_at() -> None:
    blocks = BlockOrigins()
    blocks.follow([kernel("add", CALLEE.format("add"))], {})
    blocks.follow([kernel("group", FUSED)], {"group": [("add", frozenset({0}))]})
    assert blocks.of(kernel("group", FUSED)) == []
