"""Which step, which pass of TVM in it, and which function: of faults that are planted, and of TVM's own."""

from __future__ import annotations

import pytest
from tvm import relax

from service.compiler import locating
from service.compiler.locating import counterparts, locate
from service.compiler.passes import make_pass
from service.nouns import PassSpec, Stage
from service.symptoms import Symptom, SymptomKind
from tests.cases.test_reported_cases import FOLDER, load
from tests.compiler.conftest import MakeRun, save
from tests.compiler.planted import PLACE, planting

PASSES = ["fuse_dense_add", PLACE, "legalize_ops"]


def load_case(name: str):
    path = FOLDER / f"{name}.py"
    if not path.exists():
        pytest.skip(f"{FOLDER} is not there: the reports are not part of the repository")
    return load(path)


def found_in(make_run: MakeRun, path: str, symptom: Symptom, passes=PASSES, only=None, **rest):
    run = make_run(path, passes, **rest)
    return locate(run.job, symptom, run.emit, only), run


@pytest.mark.parametrize("only", [None, 2])
def test_a_wrong_pass_is_found_by_its_numbers(make_run, models, monkeypatch, only):
    monkeypatch.setattr(locating, "make_pass", planting("wrong"))
    found, run = found_in(make_run, models["mlp"], Symptom(SymptomKind.WRONG), only=only)
    assert (found.kind, found.step, found.pass_name) == (SymptomKind.WRONG, 2, PLACE)
    assert "differs from PyTorch" in found.message
    assert (found.node, found.binding) == ("relu", "relu")
    if only is None:
        assert (found.inner_pass, found.function) == ("ReluAsExp", "main")
    looked = [each["step"] for each in run.named("looked")]
    assert looked == ([0, 1, 2] if only is None else [1, 2])


def test_a_failing_pass_is_found_with_the_pass_inside_and_tvm_s_words(make_run, models, monkeypatch):
    monkeypatch.setattr(locating, "make_pass", planting("raise"))
    found, _ = found_in(make_run, models["mlp"], Symptom(SymptomKind.FAILURE))
    assert (found.step, found.pass_name, found.inner_pass) == (2, PLACE, "RefusesRelu")
    assert found.problem == "pass-failed"
    assert found.function == "main"
    assert found.message.startswith("no relu in main")
    assert "File" not in found.message


def test_an_ill_formed_module_is_found_with_the_pass_inside(make_run, models, monkeypatch):
    monkeypatch.setattr(locating, "make_pass", planting("ill-formed"))
    found, _ = found_in(make_run, models["mlp"], Symptom(SymptomKind.FAILURE))
    assert (found.step, found.pass_name, found.inner_pass) == (2, PLACE, "Loses")
    assert (found.problem, found.function) == ("ill-formed-module", "main")


def test_nothing_is_found_where_nothing_is_wrong(make_run, models):
    for symptom in (Symptom(SymptomKind.WRONG), Symptom(SymptomKind.FAILURE), Symptom(SymptomKind.CRASH, runs=True)):
        found, _ = found_in(make_run, models["mlp"], symptom)
        assert found is None


def test_what_tvm_s_own_lowering_gets_wrong_is_found(make_run, tmp_path, monkeypatch):
    # Reported: https://github.com/apache/tvm/issues/19579. TVM writes relu as max(x, 0), which loses NaN; ours does not.
    class Plain:
        stage = Stage.LOWERING

        def apply(self, mod, _report):
            return relax.transform.LegalizeOps()(mod)

    monkeypatch.setattr(locating, "make_pass", lambda spec: Plain() if spec.name == "legalize_ops" else make_pass(spec))
    case = load_case("15_relu_keeps_nan")
    module, args = case.make()
    path = save(module, args, tmp_path / "relu.pt2")
    found, _ = found_in(make_run, path, Symptom(SymptomKind.WRONG), ["fuse_dense_add", "legalize_ops", "fold_constant"])
    assert (found.step, found.pass_name, found.inner_pass) == (2, "legalize_ops", "LegalizeOps")
    assert "nan" in found.message.lower()


def test_steps_of_two_recipes_that_belong_together():
    a, b, c, d = (PassSpec(name) for name in "abcd")
    assert counterparts((a, b, c), (a, b, c)) == [0, 1, 2, 3]
    assert counterparts((a, d, c), (a, c)) == [0, 1, 1, 2]
    assert counterparts((a, c), (a, b, c)) == [0, 1, 3]
    assert counterparts((a, b), (a, PassSpec("b", {"option": 1}))) == [0, 1, 2]
    assert counterparts((), (a,)) == [0]
    assert counterparts((a, b), ()) == [0, 0, 0]


def test_a_slow_step_is_found_beside_a_quicker_recipe(make_run, models, monkeypatch):
    # By the number of kernels in place of the time, which a machine with other work does not keep.
    monkeypatch.setattr(locating.TimeJudge, "session", lambda _self, mod: mod)
    monkeypatch.setattr(locating.TimeJudge, "_quickest", lambda _self, *mods: [len(mod.functions) for mod in mods])
    run = make_run(models["mixed"], ["legalize_ops", "fold_constant", "dead_code_elimination"])
    generic = make_run(models["mixed"], "generic").job.recipe.passes
    found = locate(run.job, Symptom(SymptomKind.SLOW, factor=1.1, against=generic), run.emit)
    assert found is not None
    assert (found.kind, found.step, found.pass_name) == (SymptomKind.SLOW, 4, None)
    assert "goes on with: fuse_tir" in found.message
    assert found.after_ms > found.before_ms
    again = locate(run.job, Symptom(SymptomKind.SLOW, factor=1.1, against=generic), run.emit, only=found.step)
    assert again is not None
    assert again.is_like(found)
