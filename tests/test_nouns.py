"""The nouns read back what they write, and the id of a Compilation depends on all that changes its result."""

from __future__ import annotations

import dataclasses
import json

import pytest

from service.nouns import (
    CompileJob,
    Limits,
    ModelFormat,
    PassContext,
    PassSpec,
    Recipe,
    Signature,
    SpecialValues,
    Stage,
    State,
    Step,
    Target,
    TensorSpec,
    Translator,
    Verify,
    canonical_json,
)
from service.records import Artifact, Compilation, Model, compilation_id

SPEC = TensorSpec("x", ("batch", 784), "float32")
RECIPE = Recipe(
    (PassSpec("fuse", {"deep": True}),),
    Target("native", 2),
    "mine",
    PassContext(3, ("FoldConstant",), {"tirx.noalias": False}),
)
STEP = Step(0, Stage.IMPORT, None, {}, True, 1.5, 1.25, {"relax.add": 2}, 1, 0.5, ("a note",))
COMPILATION = Compilation(
    "ab" * 16, State.SUCCEEDED, "2026-01-01T00:00:00Z", Model("cd" * 32, ModelFormat.EXPORTED_PROGRAM, 9, "m.pt2"),
    RECIPE, Verify.EVERY_STEP, SpecialValues.REPORT, "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", (SPEC,), Signature((SPEC,), (SPEC,), {"batch": (1, None)}),
    (STEP,), (), ({"phase": "import", "wall_ms": 1.0, "cpu_ms": 1.0},), {"passed": True}, Artifact("ef" * 32, {"cpu": "x"}), None,
)  # fmt: skip


def test_a_compilation_read_back_from_json_is_the_same():
    document = json.loads(json.dumps(COMPILATION.to_json(with_steps=False)))
    assert Compilation.from_json(document, (STEP,)) == COMPILATION
    assert Step.from_json(json.loads(json.dumps(STEP.to_json()))) == STEP


def test_steps_link_to_their_ir():
    assert COMPILATION.to_json()["steps"][0]["href"] == f"/ir/import?id={'ab' * 16}&step=0"


def test_a_job_read_back_from_json_is_the_same():
    job = CompileJob("/m", ModelFormat.EXPORTED_PROGRAM, RECIPE, Verify.ARTIFACT, (SPEC,), None, "/w", Limits())
    job = dataclasses.replace(job, translator=Translator("course", "tensorir"))
    assert CompileJob.from_json(json.loads(json.dumps(job.to_json()))) == job
    assert job.library_path == "/w/model.so"


BASE = {
    "model_sha256": "aa",
    "recipe": RECIPE,
    "verify": Verify.ARTIFACT,
    "special_values": SpecialValues.FAIL,
    "inputs": {"declared": None},
    "toolchain": {"tvm": "1"},
}


@pytest.mark.parametrize(
    "change",
    [
        {"model_sha256": "bb"},
        {"recipe": dataclasses.replace(RECIPE, passes=())},
        {"recipe": dataclasses.replace(RECIPE, passes=(PassSpec("fuse", {"deep": False}),))},
        {"recipe": dataclasses.replace(RECIPE, target=Target("native", 1))},
        {"verify": Verify.EVERY_STEP},
        {"special_values": SpecialValues.REPORT},
        {"inputs": {"declared": [SPEC.to_json()]}},
        {"toolchain": {"tvm": "2"}},
        {"recipe": dataclasses.replace(RECIPE, context=PassContext(1))},
        {"translator": Translator("course", "tensorir")},
    ],
)
def test_whatever_changes_the_result_changes_the_id(change):
    assert compilation_id(**{**BASE, **change}) != compilation_id(**BASE)


def test_the_name_of_a_recipe_does_not_change_the_id():
    assert compilation_id(**{**BASE, "recipe": dataclasses.replace(RECIPE, name=None)}) == compilation_id(**BASE)


def test_canonical_json_has_one_form_and_no_nan():
    assert canonical_json({"b": 1, "a": [1.5]}) == b'{"a":[1.5],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("inf"))


@pytest.mark.parametrize("state", list(State))
def test_only_three_states_are_final(state):
    assert state.ended == (state.value in ("succeeded", "failed", "cancelled"))
