"""The PassContext of a Recipe holds inside TVM's passes and its build."""

from __future__ import annotations

import pytest
import tvm

from service import pass_context as allowlist
from service.compiler.context import pass_context
from service.nouns import PassContext
from tests.compiler.conftest import MakeRun

# A value of each key that is not the default.
VALUES = {
    "relax.FuseOps.max_depth": 1,
    "s_tir.LoopPartition": {"partition_const_loop": True, "no_unroll_loop_with_extent_one": True},
    "tirx.StmtSimplify": {
        "transitively_prove_inequalities": True, "convert_boolean_to_and_of_ors": True,
        "apply_constraints_to_boolean_branches": True,
    },
    "tirx.UnrollLoop": {"auto_max_step": 16, "auto_max_depth": 4, "auto_max_extent": 16, "explicit_unroll": False},
    "tirx.disable_cse_tir": True,
    "tirx.disable_storage_rewrite": True,
    "tirx.disable_vectorize": True,
    "tirx.noalias": False,
}  # fmt: skip


def test_it_is_what_tvm_sees() -> None:
    with pass_context(PassContext(1, ("tirx.UnrollLoop",), {"tirx.UnrollLoop": {"auto_max_step": 8}})):
        inside = tvm.transform.PassContext.current()
        assert (inside.opt_level, [str(name) for name in inside.disabled_pass]) == (1, ["tirx.UnrollLoop"])
        assert inside.config["tirx.UnrollLoop"].auto_max_step == 8
    assert tvm.transform.PassContext.current().opt_level == 2


@pytest.mark.parametrize("key", sorted(allowlist.CONFIG))
def test_every_key_of_the_allowlist_compiles_to_the_same_numbers(
    compiled: MakeRun, models: dict[str, str], key: str
) -> None:
    context = allowlist.parse({"config": {key: VALUES[key]}})
    assert compiled(models["mixed_dynamic"], "generic", context=context).end["verification"]["passed"]


@pytest.mark.parametrize("level", [0, 1, 4])
def test_so_does_every_level(compiled: MakeRun, models: dict[str, str], level: int) -> None:
    context = allowlist.parse({"opt_level": level, "disabled": list(allowlist.DISABLED) if level == 4 else []})
    assert compiled(models["mixed_dynamic"], "generic", context=context).end["verification"]["passed"]


def test_what_is_disabled_is_skipped_inside_of_other_passes(compiled: MakeRun, models: dict[str, str]) -> None:
    passes = ["legalize_ops", "annotate_tir_op_pattern", "fuse_ops", "fuse_tir"]
    plain = compiled(models["mlp"], passes)
    skipped = compiled(models["mlp"], passes, context=PassContext(disabled=("DeadCodeElimination",)))
    assert skipped.steps[4]["functions"] > plain.steps[4]["functions"]
