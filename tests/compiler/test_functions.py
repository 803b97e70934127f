"""What is counted of a function."""

from __future__ import annotations

from service.compiler.functions import describe
from tests.compiler.conftest import module_of

BRANCHES = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def twice(x: T.Buffer((T.int64(4), T.int64(8)), "float32"), y: T.Buffer((T.int64(4), T.int64(8)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32(2.0)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.twice, (x,), out_ty=R.Tensor((4, 8), "float32"))
            lv1 = R.call_tir(cls.twice, (lv,), out_ty=R.Tensor((4, 8), "float32"))
            lv2 = R.add(lv1, R.const(1.0, "float32"))
            gv = R.split(lv2, indices_or_sections=2, axis=0)
            lv3 = gv[0]
            lv4 = gv[1]
            gv1 = R.concat((lv3, lv4), axis=0)
            R.output(gv1)
        return gv1
"""


def test_the_graph_names_what_the_text_names():
    mod = module_of(BRANCHES)
    main = describe("main", mod["main"]).entry
    private = ("operands", "arguments")
    nodes = {
        node["name"]: {key: value for key, value in node.items() if key not in private} for node in main["bindings"]
    }
    assert nodes["lv1"] == {
        "name": "lv1",
        "op": "call_tir",
        "type": 'R.Tensor((4, 8), dtype="float32")',
        "inputs": ["lv"],
        "callee": "twice",
    }
    assert nodes["gv1"]["inputs"] == ["lv3", "lv4"]
    assert nodes["lv3"] == {
        "name": "lv3",
        "op": "TupleGetItem",
        "type": nodes["lv3"]["type"],
        "inputs": ["gv"],
        "index": 0,
    }
    assert nodes["return"]["inputs"] == ["gv1"]
    assert all(name in main["text"] for name in nodes)


def test_calls_are_counted_and_constants_weighed():
    described = describe("main", module_of(BRANCHES)["main"])
    assert described.calls == {"twice": 2}
    assert (described.entry["constants"], described.entry["constant_bytes"]) == (1, 4)


def test_the_cost_of_a_kernel_is_its_operations_and_its_parameters():
    kernel = describe("twice", module_of(BRANCHES)["twice"]).entry
    assert (kernel["flops"], kernel["bytes_moved"]) == (4 * 8, 2 * 4 * 8 * 4)


def test_what_has_symbols_has_no_cost():
    symbolic = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def twice(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        y = T.match_buffer(var_y, (n,), "float32")
        for i in range(n):
            with T.sblock("y"):
                vi = T.axis.spatial(n, i)
                y[vi] = x[vi] * T.float32(2.0)
"""
    assert describe("twice", module_of(symbolic)["twice"]).entry["bytes_moved"] is None
