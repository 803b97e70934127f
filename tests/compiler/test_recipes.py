"""The Catalogue is complete, describes itself, and any order that it accepts works."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm

from service.catalogue import Catalogue
from service.compiler.passes import make_pass, pass_class, pass_names
from service.compiler.recipes import load_catalogue
from service.compiler.report import Report
from service.errors import PassOrder
from service.nouns import PassSpec, SpecialValues
from tests.compiler.conftest import MakeRun, module_of

EXPECTED = [
    "annotate_tir_op_pattern", "dead_code_elimination", "fold_constant", "fuse_dense_add", "fuse_ewise_fma",
    "fuse_ops", "fuse_tir", "legalize_ops", "lower_to_tensorir",
]  # fmt: skip


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
