"""Parts of programs as programs of their own."""

from __future__ import annotations

import pytest
import torch

from service.compiler.importers.exported_program import load_program
from service.compiler.reduction import NotReducible, Whole, part_of, reduce
from service.symptoms import Fragment
from tests.compiler.conftest import MakeRun


@pytest.fixture
def whole(make_run: MakeRun, models):
    def load(name: str) -> Whole:
        return Whole.load(make_run(models[name]).job)

    return load


def outputs_of(program, inputs) -> list[torch.Tensor]:
    with torch.no_grad():
        return torch.utils._pytree.tree_leaves(program.module()(*inputs))


@pytest.mark.parametrize("name", ["mlp", "mixed", "mixed_dynamic"])
def test_the_whole_computes_the_same(whole, name):
    loaded = whole(name)
    reduced = reduce(loaded, Fragment())
    expected = outputs_of(loaded.program, loaded.inputs)
    actual = outputs_of(reduced.program, reduced.program.example_inputs[0])
    assert len(actual) >= len(expected)
    for value in expected:
        assert any(value.shape == mine.shape and torch.allclose(value, mine, atol=1e-6) for mine in actual)


@pytest.mark.parametrize("name", ["mlp", "mixed", "mixed_dynamic"])
def test_every_single_part_is_a_program_with_eager_s_values_as_inputs(whole, name):
    loaded = whole(name)
    for position in range(len(loaded.parts())):
        reduced = reduce(loaded, Fragment(nodes=(position,)))
        assert reduced.outputs >= 1
        outputs_of(reduced.program, reduced.program.example_inputs[0])


def test_a_part_is_saved_and_read_back_by_the_safe_reader(whole, make_run, tmp_path):
    file = tmp_path / "reduced.pt2"
    file.touch()
    reduced = reduce(whole("mixed"), Fragment(nodes=(2, 3, 4)))
    reduced.save(str(file))
    program = load_program(make_run(str(file)).job)
    mine = outputs_of(program, program.example_inputs[0])
    theirs = outputs_of(reduced.program, reduced.program.example_inputs[0])
    assert all(torch.equal(*pair) for pair in zip(mine, theirs, strict=True))


def test_outputs_can_be_chosen(whole):
    loaded = whole("mixed")
    assert reduce(loaded, Fragment()).outputs > 1
    assert reduce(loaded, Fragment(outputs=(0,))).outputs == 1


def test_sizes_become_smaller_where_pytorch_takes_it(whole):
    loaded = whole("mlp")  # (3, 12) to 8 to 4
    smaller = reduce(loaded, Fragment(sizes=((12, 2), (8, 1))))
    assert smaller.sizes == (4, 3, 2)
    with pytest.raises(NotReducible):
        reduce(whole("mixed"), Fragment(sizes=((8, 3),)))


@pytest.mark.parametrize("name", ["mlp", "mixed", "mixed_dynamic"])
def test_the_printed_module_runs_and_exports(whole, name, tmp_path):
    code = reduce(whole(name), Fragment()).code
    scope: dict = {}
    exec(compile(code, "reduced.py", "exec"), scope)
    assert isinstance(scope["program"], torch.export.ExportedProgram)


def test_a_node_is_found_in_its_part(whole):
    loaded = whole("mlp")
    names = [[node.name for node in part] for part in loaded.parts()]
    assert part_of(loaded, names[2][0]) == 2
    assert part_of(loaded, "nothing") is None
    assert part_of(loaded, None) is None
