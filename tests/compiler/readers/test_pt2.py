"""Honest archives come through unchanged."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn

from service.compiler.importers.exported_program import load_program
from service.errors import DamagedModel, ImportFailed
from service.nouns import CompileJob, Limits, ModelFormat, Recipe, Verify
from tests.compiler.readers.honest import Honest, Point, make
from tests.hostile.pt2_files import config, honest_files, pack, program

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
    exported = export(honest)
    torch.export.save(exported, tmp_path / "m.pt2")
    loaded = load_program(job_of(tmp_path / "m.pt2", tmp_path))
    expected = exported.module()(*honest.args, **honest.kwargs)
    leaves = pytree.tree_leaves((honest.args, honest.kwargs))
    args, kwargs = pytree.tree_unflatten(
        [leaf for leaf in pytree.tree_flatten((honest.args, honest.kwargs))[0]], loaded.call_spec.in_spec
    )
    assert len(leaves) >= 1
    assert same(loaded.module()(*args, **kwargs), expected)
    assert set(loaded.state_dict) == set(exported.state_dict)
    for key, tensor in exported.state_dict.items():
        assert same(loaded.state_dict[key], tensor)
        assert isinstance(loaded.state_dict[key], nn.Parameter) == isinstance(tensor, nn.Parameter)


@pytest.mark.parametrize("name", sorted(set(HONEST) - {"named_tuple"}))
def test_the_sample_inputs_are_kept(name: str, tmp_path: Path) -> None:
    honest = HONEST[name]
    torch.export.save(export(honest), tmp_path / "m.pt2")
    loaded = load_program(job_of(tmp_path / "m.pt2", tmp_path))
    assert same(loaded.example_inputs, (honest.args, honest.kwargs))


def rewritten(folder: Path, edit: Any) -> Any:
    """The program of an honest archive after `edit` of its entries."""
    (folder / "m.pt2").write_bytes(pack(edit(honest_files())))
    return load_program(job_of(folder / "m.pt2", folder))


def saved(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def test_weights_and_constants_of_an_older_pytorch_are_decoded(tmp_path: Path) -> None:
    weight, bias = torch.randn(3, 4), torch.randn(6)[::2]
    state = {"dense.weight": nn.Parameter(weight), "dense.bias": nn.Parameter(bias)}
    loaded = rewritten(
        tmp_path,
        lambda files: {
            **files,
            "data/weights/model.pt": saved(state),
            "data/constants/model.pt": saved({"table": bias}),
        },
    )
    assert same(loaded.state_dict, state)
    assert isinstance(loaded.state_dict["dense.bias"], nn.Parameter)
    assert same(loaded.constants["table"], bias)


def test_a_pickled_plain_tensor_is_decoded(tmp_path: Path) -> None:
    bias = nn.Parameter(torch.randn(3))

    def edit(files: dict[str, bytes]) -> dict[str, bytes]:
        files = config(files, "weights", lambda table: table["dense.bias"].update(use_pickle=True))
        return {**files, "data/weights/weight_1": saved(bias)}

    assert same(rewritten(tmp_path, edit).state_dict["dense.bias"], bias)


def _tensor_meta(**meta: Any) -> Any:
    return lambda files: config(files, "weights", lambda table: table["dense.bias"]["tensor_meta"].update(meta))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_tensor_meta(layout=1), "sparse"),
        (_tensor_meta(device={"type": "cuda", "index": 0}), r"model\.to\('cpu'\)"),
        (lambda files: {**files, "byteorder": b"big"}, "byte order"),
        (lambda files: {**files, "archive_version": b"1"}, "version"),
        (lambda files: {**files, "surprise": b""}, "no .pt2 has"),
        (lambda files: program(files, lambda value: value["schema_version"].update(major=9)), "schema version 9"),
        (lambda files: config(files, "weights", lambda table: table.pop("dense.bias")), "lacks the tensor"),
        (lambda files: program(files, lambda value: value["graph_module"].pop("graph")), "no 'graph'"),
        (lambda files: {**files, "models/model.json": b"{"}, "not JSON"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, edit: Any, words: str) -> None:
    with pytest.raises(DamagedModel, match=words):
        rewritten(tmp_path, edit)


def test_operators_that_are_not_taken_are_told_all_at_once(tmp_path: Path) -> None:
    def edit(value: Any) -> None:
        nodes = value["graph_module"]["graph"]["nodes"]
        nodes[0]["target"], nodes[1]["target"] = "torch.ops.mine.first.default", "torch.ops.aten.resize_.default"

    with pytest.raises(ImportFailed) as caught:
        rewritten(tmp_path, lambda files: program(files, edit))
    assert caught.value.extensions["operators"] == ["aten.resize_.default", "mine.first.default"]
    assert caught.value.extensions["unsupported"][0]["source_line"].startswith("pt2_files.py:")


def test_an_archive_without_sample_inputs_loads(tmp_path: Path) -> None:
    loaded = rewritten(
        tmp_path, lambda files: {name: data for name, data in files.items() if "sample_inputs" not in name}
    )
    assert loaded.example_inputs is None
