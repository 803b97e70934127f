"""Honest archives come through unchanged."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn

from service.compiler.importers.exported_program import load_program
from service.nouns import CompileJob, Limits, ModelFormat, Recipe, Verify
from tests.compiler.readers.honest import Honest, Point, make

pytestmark = pytest.mark.filterwarnings("ignore:No complete tensor found")
HONEST = make()
pytree._register_namedtuple(Point, serialized_type_name="tests.Point")


def export(honest: Honest) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(
            honest.module.eval(), honest.args, honest.kwargs or None, dynamic_shapes=honest.dynamic
        )


def job_of(
    path: Path, folder: Path, model_format: ModelFormat = ModelFormat.EXPORTED_PROGRAM, **rest: Any
) -> CompileJob:
    fields: dict[str, Any] = {"inputs": None, "inputs_path": None, "limits": Limits(), **rest}
    return CompileJob(str(path), model_format, Recipe(()), Verify.ARTIFACT, work_dir=str(folder), **fields)


def same(left: Any, right: Any) -> bool:
    """Whether all leaves are equal bit by bit, dtypes and NaN included."""
    left, right = pytree.tree_leaves(left), pytree.tree_leaves(right)
    return len(left) == len(right) and all(_bits(one) == _bits(two) for one, two in zip(left, right, strict=True))


def _bits(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    plain = leaf.detach().contiguous()
    return plain.dtype, tuple(plain.shape), plain.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_archive_gives_the_same_bits_after_rewriting(name: str, tmp_path: Path) -> None:
    honest = HONEST[name]
    program = export(honest)
    torch.export.save(program, tmp_path / "m.pt2")
    loaded = load_program(job_of(tmp_path / "m.pt2", tmp_path))
    expected = program.module()(*honest.args, **honest.kwargs)
    leaves = pytree.tree_leaves((honest.args, honest.kwargs))
    args, kwargs = pytree.tree_unflatten(
        [leaf for leaf in pytree.tree_flatten((honest.args, honest.kwargs))[0]], loaded.call_spec.in_spec
    )
    assert len(leaves) >= 1
    assert same(loaded.module()(*args, **kwargs), expected)
    assert set(loaded.state_dict) == set(program.state_dict)
    for key, tensor in program.state_dict.items():
        assert same(loaded.state_dict[key], tensor)
        assert isinstance(loaded.state_dict[key], nn.Parameter) == isinstance(tensor, nn.Parameter)


@pytest.mark.parametrize("name", sorted(set(HONEST) - {"named_tuple"}))
def test_the_sample_inputs_are_kept(name: str, tmp_path: Path) -> None:
    honest = HONEST[name]
    torch.export.save(export(honest), tmp_path / "m.pt2")
    loaded = load_program(job_of(tmp_path / "m.pt2", tmp_path))
    assert same(loaded.example_inputs, (honest.args, honest.kwargs))
