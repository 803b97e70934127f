"""Lines of kernels through the whole build."""

from __future__ import annotations

import re

import pytest
import tvm_ffi
from tvm import IRModule

from service.compiler.functions import describe
from service.compiler.statement_lines import lines_made_of, with_lines
from tests.compiler.conftest import MakeRun, module_of

KERNEL = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        c = T.sblock_alloc_buffer((4, 8))
        for i, j in T.grid(4, 8):
            with T.sblock("first"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                c[v_i, v_j] = a[v_i, v_j] + T.float32(1)
        for i, j in T.grid(4, 8):
            with T.sblock("second"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                b[v_i, v_j] = c[v_i, v_j] * T.float32(2)
"""


def test_a_module_with_lines_is_the_same_module() -> None:
    mod = module_of(KERNEL)
    lined = with_lines(mod)
    assert tvm_ffi.structural_equal(mod, lined)
    assert lined.script() == mod.script()


def test_statements_stand_where_the_text_has_them() -> None:
    (function,) = (f for _, f in with_lines(module_of(KERNEL)).functions.items())
    text = describe("kernel", function).entry["text"].splitlines()
    made_of = lines_made_of(function)
    assert len(made_of) == len(text)
    assert [line for line in made_of if line] == [number for number, line in enumerate(made_of, 1) if line]
    marked = {text[line - 1].split(" = ")[0].strip() for line in made_of if line}
    assert {"c[v_i, v_j]", "b[v_i, v_j]"} <= marked
    # The outer loop of a grid; what has a Span but no line of its own counts for it.
    assert any(text[line - 1].lstrip().startswith("for i, j") for line in made_of if line)


def test_a_kernel_without_lines_is_made_of_nothing() -> None:
    mod: IRModule = module_of(KERNEL)
    assert not any(lines_made_of(mod["kernel"]))


@pytest.mark.parametrize("recipe", ["generic", "fast", "course"])
def test_what_is_built_says_of_which_line_it_is_made(recipe: str, compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], recipe)
    kernels = {entry["name"]: entry["text"].splitlines() for entry in run.snapshots[len(run.steps) - 1]["functions"]}
    for result in run.snapshots[-2:]:
        for entry in result["functions"]:
            lines = entry["text"].splitlines()
            assert len(entry["made_of"]) == len(lines)
            stores = {line for line in entry["made_of"] if line}
            assert stores, entry["name"]
            assert all(re.match(r"\s+\w+(\[.*\]|: T\.let.*) = ", kernels[entry["name"]][line - 1]) for line in stores)
