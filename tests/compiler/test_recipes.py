"""The Catalogue is complete, describes itself, and any order that it accepts works."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
import tvm
from tvm import relax

from service.catalogue import Catalogue
from service.compiler import recipes
from service.compiler.passes import make_pass, pass_class, pass_names
from service.compiler.recipes import load_catalogue
from service.compiler.report import Report
from service.compiler.target import tvm_target
from service.errors import PassOrder, UnknownPass
from service.nouns import PassSpec, SpecialValues, Target
from tests.compiler.conftest import MakeRun, module_of

EXPECTED = [
    "annotate_tir_op_pattern", "dead_code_elimination", "fold_constant", "fuse_dense_add", "fuse_ewise_fma",
    "fuse_ops", "fuse_tir", "legalize_ops", "lower_to_tensorir",
]  # fmt: skip


PROGRAM = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32"), k: R.Tensor((3, 2, 3, 3), "float32")):
        with R.dataflow():
            lv = R.permute_dims(w)
            lv1 = R.matmul(x, lv)
            lv2 = R.add(lv1, b)
            lv3 = R.nn.relu(lv2)
            lv4 = R.multiply(lv3, x)
            lv5 = R.add(lv4, lv1)
            lv6 = R.reshape(lv5, (1, 2, 4, 8))
            lv7 = R.nn.conv2d(lv6, k, padding=1)
            lv8 = R.nn.softmax(R.tanh(lv7))
            lv9 = R.take(w, R.const(1, "int64"), axis=0)
            gv = R.add(lv8, lv9)
            R.output(gv)
        return gv
"""


def test_every_file_of_the_folder_is_a_pass_of_its_name() -> None:
    assert set(EXPECTED) <= set(pass_names())
    for name in pass_names():
        assert pass_class(name).name == name


def test_the_catalogue_survives_json() -> None:
    catalogue = load_catalogue()
    assert Catalogue.from_json(catalogue.to_json()) == catalogue


@pytest.mark.parametrize("name", pass_names())
def test_every_pass_is_documented_by_an_example_that_is_true(name: str) -> None:
    info = load_catalogue().passes[name]
    assert info.summary.endswith(".")
    after = make_pass(PassSpec(name, info.example_options)).apply(module_of(info.before), Report())
    tvm.ir.assert_structural_equal(after, module_of(info.after))


@pytest.mark.parametrize("seed", range(6))
def test_any_accepted_order_computes_what_pytorch_computes(
    compiled: MakeRun, models: dict[str, str], seed: int
) -> None:
    choice = random.Random(seed)
    passes = _accepted_order(choice)
    catalogue = load_catalogue()
    entries = [{"name": name, "options": catalogue.passes[name].example_options} for name in passes]
    # Its erf loses NaN, as its documentation says.
    special = SpecialValues.REPORT if "fast_math_transform" in passes else SpecialValues.FAIL
    model = models[choice.choice(("mixed", "mixed_dynamic"))]
    run = compiled(model, entries, verify="every_step", special_values=special)
    assert [step["pass"] for step in run.steps] == [None, *passes]
    assert max(step["error"] for step in run.steps) < 1e-4
    assert np.all([output["passed"] for output in run.end["verification"]["outputs"]])


def test_after_every_pass_every_other_that_may_follow_leaves_a_module_that_is_well_formed() -> None:
    """Any order that the Catalogue accepts: no pass aborts, whatever stood before it."""
    catalogue = load_catalogue()
    options = {name: info.example_options for name, info in catalogue.passes.items()}

    def after(mod: tvm.IRModule, name: str) -> tvm.IRModule:
        with tvm_target(Target()):
            return make_pass(PassSpec(name, options[name])).apply(mod, Report())

    for start in ((), ("legalize_ops", "annotate_tir_op_pattern")):
        begun = functools.reduce(after, start, module_of(PROGRAM))
        for first in catalogue.passes:
            if not _accepted(catalogue, (*start, first)):
                continue
            once = after(begun, first)
            for second in catalogue.passes:
                if _accepted(catalogue, (*start, first, second)):
                    relax.analysis.well_formed(after(once, second))


def _accepted(catalogue: Catalogue, names: tuple[str, ...]) -> bool:
    try:
        catalogue.check_order(tuple(PassSpec(name) for name in names))
    except PassOrder:
        return False
    return True


def test_a_preset_may_hold_presets_before_it_and_none_has_the_name_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = {"a": ("A.", ("fuse_dense_add",)), "b": ("B.", ("a", {"name": "lower_to_tensorir"}, "fuse_tir"))}
    monkeypatch.setattr(recipes, "PRESETS", nested)
    assert [spec.name for spec in load_catalogue().recipes["b"].passes] == [
        "fuse_dense_add",
        "lower_to_tensorir",
        "fuse_tir",
    ]
    monkeypatch.setattr(recipes, "PRESETS", {"a": ("A.", ("b",)), "b": ("B.", ("a",))})
    with pytest.raises(UnknownPass, match="No pass is named 'b'"):
        load_catalogue()
    monkeypatch.setattr(recipes, "PRESETS", {"fuse_tir": ("F.", ())})
    with pytest.raises(LookupError, match="has the name of a pass"):
        load_catalogue()


def _accepted_order(choice: random.Random) -> list[str]:
    catalogue = load_catalogue()
    names = list(catalogue.passes)
    while True:
        passes = [choice.choice(names) for _ in range(choice.randint(3, 8))]
        try:
            catalogue.check_order(tuple(PassSpec(name) for name in passes))
        except PassOrder:
            continue
        return passes
