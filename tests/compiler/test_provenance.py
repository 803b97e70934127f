"""Origins carried from step to step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.compiler.compile import compile_model
from service.compiler.provenance import Provenance
from service.compiler.recipes import load_catalogue
from tests import zoo
from tests.compiler.conftest import MakeRun, Run, save


def entry(name: str, *bindings: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "bindings": list(bindings)}


def node(name: str, op: str, *operands: str | int, **rest: Any) -> dict[str, Any]:
    inputs = [each for each in operands if isinstance(each, str)]
    return {"name": name, "op": op, "inputs": inputs, "operands": list(operands), **rest}


X, RETURN = node("x", "parameter"), "return"
IMPORTED = [
    entry(
        "main", X, node("conv", "relax.nn.conv2d", "x", 7), node("relu", "relax.nn.relu", "conv"),
        node("pool", "relax.nn.max_pool2d", "relu"), node(RETURN, RETURN, "pool"),
    )
]  # fmt: skip
POSITIONS = {"conv": 0, "relu": 1, "pool": 2}


def origins(entries: list[dict[str, Any]], function: str = "main") -> dict[str, list[int]]:
    found = next(each for each in entries if each["name"] == function)
    return {node["name"]: node["origins"] for node in found["bindings"]}


def test_what_keeps_its_name_keeps_its_origin() -> None:
    provenance = Provenance(POSITIONS)
    assert origins(provenance.follow(IMPORTED)) == {"x": [], "conv": [0], "relu": [1], "pool": [2], "return": []}
    lowered = [
        entry(
            "main", X, node("conv", "call_tir", "x", 7, callee="conv2d", arguments=["x", 7]),
            node("relu", "call_tir", "conv", callee="relu", arguments=["conv"]),
            node("pool", "call_tir", "relu", callee="max_pool2d", arguments=["relu"]), node(RETURN, RETURN, "pool"),
        ),
        entry("conv2d"), entry("relu"), entry("max_pool2d"),
    ]  # fmt: skip
    followed = provenance.follow(lowered)
    assert {each["name"]: each["origins"] for each in followed} == {
        "main": [0, 1, 2], "conv2d": [0], "relu": [1], "max_pool2d": [2],
    }  # fmt: skip


def test_a_new_binding_has_the_origins_of_what_it_stands_for() -> None:
    provenance = Provenance(POSITIONS)
    provenance.follow(IMPORTED)
    fused = [
        entry(
            "main",
            X,
            node("lv", "call", "x", 7, callee="fast", arguments=["x", 7]),
            node("pool", "relax.nn.max_pool2d", "lv"),
            node(RETURN, RETURN, "pool"),
        )
    ]
    assert origins(provenance.follow(fused))["lv"] == [0, 1]


def test_a_new_function_is_looked_into_where_it_is_called() -> None:
    provenance = Provenance(POSITIONS)
    provenance.follow(IMPORTED)
    fused = [
        entry("main", X, node("lv", "call", "x", 7, callee="group", arguments=["x", 7]), node("lv1", "relax.nn.max_pool2d", "lv"), node(RETURN, RETURN, "lv1")),
        entry("group", node("a", "parameter"), node("w", "parameter"), node("lv", "relax.nn.conv2d", "a", "w"), node("gv", "relax.nn.relu", "lv"), node(RETURN, RETURN, "gv")),
    ]  # fmt: skip
    followed = provenance.follow(fused)
    assert origins(followed, "group") == {"a": [], "w": [], "lv": [0], "gv": [1], "return": []}
    assert origins(followed)["lv"] == [0, 1]
    assert origins(followed)["lv1"] == [2]


def test_equal_functions_called_twice_have_the_origins_of_both_calls() -> None:
    provenance = Provenance({"a": 0, "b": 1})
    provenance.follow(
        [entry("main", X, node("a", "relax.exp", "x"), node("b", "relax.exp", "a"), node(RETURN, RETURN, "b"))]
    )
    followed = provenance.follow(
        [
            entry(
                "main",
                X,
                node("lv", "call", "x", callee="group", arguments=["x"]),
                node("gv", "call", "lv", callee="group", arguments=["lv"]),
                node(RETURN, RETURN, "gv"),
            ),
            entry("group", node("p", "parameter"), node("gv", "relax.exp", "p"), node(RETURN, RETURN, "gv")),
        ]
    )
    assert origins(followed)["lv"] == [0]
    assert origins(followed)["gv"] == [1]
    assert origins(followed, "group")["gv"] == [0, 1]


def test_passing_names_that_mean_another_thing_after_a_pass_are_not_trusted() -> None:
    provenance = Provenance(POSITIONS)
    provenance.follow(IMPORTED)
    provenance.follow(
        [
            entry(
                "main",
                X,
                node("lv", "f", "x"),
                node("lv1", "relax.nn.relu", "lv"),
                node("pool", "relax.nn.max_pool2d", "lv1"),
                node(RETURN, RETURN, "pool"),
            )
        ]
    )
    swapped = [
        entry(
            "main",
            X,
            node("lv1", "f", "x"),
            node("lv", "relax.nn.relu", "lv1"),
            node("pool", "relax.nn.max_pool2d", "lv"),
            node(RETURN, RETURN, "pool"),
        )
    ]
    followed = origins(provenance.follow(swapped))
    assert followed["lv1"] == [0, 1]
    assert followed["lv"] == [0, 1]
    assert followed["pool"] == [2]


def test_kernels_that_a_pass_renames_go_on_as_the_old_ones() -> None:
    """As fuse_epilogues and channels_last do: the first takes its neighbour in, the names of others grow."""
    provenance = Provenance({"a": 0, "b": 1, "c": 2, "d": 3})

    def chain(*calls: tuple[str, str]) -> list[dict[str, Any]]:
        names = ["x", *[name for name, _ in calls]]
        nodes = [
            node(name, "call_tir", names[at], callee=callee, arguments=[names[at]])
            for at, (name, callee) in enumerate(calls)
        ]
        return [entry("main", X, *nodes, node(RETURN, RETURN, names[-1])), *[entry(callee) for _, callee in calls]]

    provenance.follow(chain(("a", "conv"), ("b", "pool"), ("c", "reshape"), ("d", "matmul")))
    joined = origins(provenance.follow(chain(("lv", "conv"), ("lv1", "pool_reshape"), ("lv2", "matmul"))))
    assert joined == {"x": [], "lv": [0], "lv1": [1, 2], "lv2": [3], "return": []}
    renamed = origins(provenance.follow(chain(("lv3", "conv_last"), ("lv", "pool_reshape_last"), ("lv1", "matmul"))))
    assert renamed == {"x": [], "lv3": [0], "lv": [1, 2], "lv1": [3], "return": []}


def kernels_with_source(run: Run) -> tuple[int, int]:
    nodes = run.snapshots[0]["origins"]
    last = run.snapshots[len(run.steps) - 1]
    kernels = [each for each in last["functions"] if each["kind"] == "tensorir"]
    return len(kernels), sum(any(nodes[position]["source"] for position in each["origins"]) for each in kernels)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("name", ["resnet18", "bert", "lstm_tagger"])
def test_kernels_lead_back_to_source_lines(name: str, make_run: MakeRun, tmp_path: Path) -> None:
    """With every preset at least 95 % of them do."""
    path = save(*zoo.make(name), tmp_path / "given.pt2")
    for recipe in load_catalogue().recipes:
        run = make_run(path, recipe)
        compile_model(run.job, run.emit)
        kernels, sourced = kernels_with_source(run)
        assert kernels > 0 or recipe == "none"
        assert sourced >= 0.95 * kernels, (recipe, kernels, sourced)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_scheduled_kernels_come_from_a_few_nodes_each(make_run: MakeRun, tmp_path: Path) -> None:
    """No kernel of the default recipe comes from the whole model: one layer at most is in it, for each of its calls."""
    path = save(*zoo.make("resnet18"), tmp_path / "given.pt2")
    run = make_run(path, "fast")
    compile_model(run.job, run.emit)
    main = next(each for each in run.snapshots[len(run.steps) - 1]["functions"] if each["name"] == "main")
    assert all(len(each["origins"]) <= 6 for each in main["bindings"])


def test_a_residual_network_is_traced_exactly(make_run: MakeRun, tmp_path: Path) -> None:
    path = save(*zoo.make("resnet18"), tmp_path / "given.pt2")
    run = make_run(path, "generic")
    compile_model(run.job, run.emit)
    nodes = run.snapshots[0]["origins"]
    last = run.snapshots[len(run.steps) - 1]
    main = next(each for each in last["functions"] if each["name"] == "main")
    convolutions = [
        [
            nodes[position]["node"]
            for position in node["origins"]
            if nodes[position]["operator"].startswith("aten.convolution")
        ]
        for node in main["bindings"]
        if "conv2d" in node.get("callee", "")
    ]
    assert len(convolutions) == 20
    assert all(len(each) == 1 for each in convolutions)
    assert len({each[0] for each in convolutions}) == 20
