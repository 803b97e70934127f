"""Groups by the patterns of the request: what they hold, what the step tells, and that the numbers stay."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from service.compiler.passes import make_pass
from service.compiler.report import Report
from service.nouns import PassSpec
from tests.compiler.conftest import MakeRun, Run, module_of, run_module

HEAD = "@I.ir_module\nclass Module:\n"
TWO_LAYERS = (
    HEAD
    + """\
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), v: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.nn.relu(lv1)
            lv3 = R.matmul(lv2, v)
            lv4 = R.add(lv3, b)
            gv = R.nn.relu(lv4)
            R.output(gv)
        return gv
"""
)
TWO_ADDS = (
    HEAD
    + """\
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.add(lv, x)
            gv = R.multiply(lv1, lv2)
            R.output(gv)
        return gv
"""
)
SYMBOLIC = (
    HEAD
    + """\
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(("n", 64), "float32"):
        n = T.int64()
        with R.dataflow():
            lv: R.Tensor((n, 8), "float32") = R.matmul(x, w)
            lv1: R.Tensor((n, 8), "float32") = R.nn.relu(lv)
            lv2: R.Tensor((n, 8, 8), "float32") = R.broadcast_to(R.reshape(lv1, (n, 8, 1)), (n, 8, 8))
            gv: R.Tensor((n, 64), "float32") = R.reshape(lv2, (n, 64))
            R.output(gv)
        return gv
"""
)


def fused(text: str, *patterns: Any, lower: bool = True, **options: Any) -> tuple[tvm.IRModule, list[Any], Report]:
    """The module after the pass, what it tells of each pattern, and its report; with the same numbers as before."""
    mod, report = module_of(text), Report()
    after = make_pass(PassSpec("fuse_pattern", {"patterns": list(patterns), **options})).apply(mod, report)
    relax.analysis.well_formed(after)
    if lower:
        kernels = after
        for name in ("lower_to_tensorir", "fuse_tir"):
            kernels = make_pass(PassSpec(name)).apply(kernels, Report())
        generator = np.random.default_rng(1)
        inputs = [
            generator.standard_normal([int(d) for d in p.ty.shape.values]).astype("float32") for p in mod["main"].params
        ]
        for mine, theirs in zip(run_module(kernels, *inputs), run_module(mod, *inputs), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    return after, report.details["patterns"], report


def groups(mod: tvm.IRModule) -> list[str]:
    return sorted(str(gvar.name_hint) for gvar, function in mod.functions.items() if "Primitive" in (function.attrs or {}))  # fmt: skip


CHAIN = {"name": "layer", "chain": ["matmul", "add", "relu"]}


def test_groups_of_the_same_shapes_share_one_function_of_the_patterns_name() -> None:
    after, (told,), report = fused(TWO_LAYERS, CHAIN)
    assert groups(after) == ["layer"]
    assert [match["at"] for match in told["matches"]] == ["lv2", "gv"]
    assert told["matches"][0] == {
        "function": "main", "group": "layer", "at": "lv2", "nodes": {"[0]": "lv", "[1]": "lv1", "[2]": "lv2"},
    }  # fmt: skip
    assert (told["near_misses"], report.notes) == ([], [])


def test_a_higher_priority_takes_what_a_lower_one_would_have() -> None:
    short = {"name": "dense", "chain": ["matmul", "add"]}
    after, told, _ = fused(TWO_LAYERS, CHAIN, short)
    assert (groups(after), [len(each["matches"]) for each in told]) == (["layer"], [2, 0])
    after, told, report = fused(TWO_LAYERS, CHAIN, {**short, "priority": 1})
    assert groups(after) == ["dense"]
    assert [(each["name"], len(each["matches"])) for each in told] == [("dense", 2), ("layer", 0)]
    assert [each["constraint"] for each in told[1]["near_misses"]] == ["group", "group"]
    assert report.notes == [
        "Pattern 'layer' matched nothing. The nearest, at 'lv2': node '[1]' fails by group: "
        "'lv1' belongs to the group 'dense' already."
    ]


def test_a_matmul_that_two_adds_read_is_left_with_the_reason_or_computed_twice_on_demand() -> None:
    dense_add = {"name": "dense_add", "chain": ["matmul", "add"]}
    after, (told,), _ = fused(TWO_ADDS, dense_add)
    assert groups(after) == []
    assert tvm_ffi.structural_equal(after, module_of(TWO_ADDS))
    assert [(each["at"], each["node"], each["constraint"]) for each in told["near_misses"]] == [
        ("lv1", "[0]", "single_use"), ("lv2", "[0]", "single_use"),
    ]  # fmt: skip
    twice, (told,), _ = fused(TWO_ADDS, {"name": "dense_add", "chain": [{"op": "matmul", "single_use": False}, "add"]})
    assert groups(twice) == ["dense_add", "dense_add1"]
    assert "R.matmul" not in twice["main"].script()
    assert len(told["matches"]) == 2


def test_a_graph_whose_inner_value_is_read_twice_inside_is_one_group() -> None:
    nodes = {
        "mm": {"op": "matmul", "args": ["x", "_"]},
        "left": {"op": "add", "args": ["mm", "bias"]},
        "right": {"op": "add", "args": ["mm", "x"]},
        "y": {"op": "multiply", "args": ["left", "right"]},
        "x": {"rank": 2},
        "bias": {"rank": 1},
    }
    after, (told,), _ = fused(TWO_ADDS, {"name": "gate", "nodes": nodes})
    assert groups(after) == ["gate"]
    assert len(after["gate"].params) == 3
    assert told["matches"][0]["nodes"]["bias"] == "b"


def test_a_name_that_is_taken_gets_a_number() -> None:
    after, (told,), _ = fused(TWO_LAYERS, {"name": "main", "chain": ["matmul", "add"]})
    assert groups(after) == ["main1"]
    assert {match["group"] for match in told["matches"]} == {"main1"}


def test_sizes_that_are_symbols_stay_symbols() -> None:
    after, _, _ = fused(SYMBOLIC, {"name": "dense", "chain": ["matmul", "relu"]}, lower=False)
    assert groups(after) == ["dense"]
    after, _, _ = fused(SYMBOLIC, {"name": "wide", "chain": ["reshape", "broadcast_to"]}, lower=False)
    assert groups(after) == ["wide"]


def test_the_lecture_s_network_by_patterns_alone_and_with_generic_fusion(
    compiled: MakeRun, models: dict[str, str]
) -> None:
    layers = {"name": "dense_relu", "nodes": {
        "mm": {"op": "matmul", "args": ["_", "w"], "dtype": "float32"}, "y": {"op": "add", "args": ["mm", "b"]},
        "r": {"op": "relu", "args": ["y"]}, "w": {"constant": True, "rank": 2}, "b": {"constant": True, "rank": 1}}}  # fmt: skip
    custom = ["fold_constant", {"name": "fuse_pattern", "options": {"patterns": [layers]}}]
    alone = compiled(models["mlp"], [*custom, "lower_to_tensorir", "fuse_tir"], verify="every_step")
    generic = ["legalize_ops", "annotate_tir_op_pattern", "fuse_ops", "fuse_tir"]
    both = compiled(models["mlp"], [*custom, *generic], verify="every_step")
    assert [kernels(run) for run in (alone, both)] == [
        ["add", "dense_relu", "matmul"],
        ["dense_relu", "fused_matmul_add"],
    ]
    for run in (alone, both):
        step = run.steps[2]
        assert len(step["details"]["patterns"][0]["matches"]) == 1
        (near,) = step["details"]["patterns"][0]["near_misses"]
        assert (near["node"], near["constraint"]) == ("r", "op")
        assert "no operator reads it" in near["message"]
        assert max(each["error"] for each in run.steps if each["error"] is not None) < 1e-5


def kernels(run: Run) -> list[str]:
    """The TensorIR functions after fuse_tir, without the numbers of their names."""
    snapshot = run.snapshots[next(step["index"] for step in run.steps if step["pass"] == "fuse_tir")]
    return sorted({re.sub(r"\d", "", each["name"]) for each in snapshot["functions"] if each["kind"] == "tensorir"})
