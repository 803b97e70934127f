"""What an export says of the sizes of its inputs holds of the library, too: no other size is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from service.compiler.compile import compile_model
from service.compiler.settled import is_foldable
from service.compiler.size_guards import KEPT_IN, multiples, size_conditions
from service.errors import CheckFailed, ImportFailed
from service.runtime.session import Session
from tests.compiler.conftest import MakeRun, save

AUTO = Dim.AUTO
H = Dim("h", min=2, max=50)


class Halves(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0] // 2, 2, -1).sum(1)


class Branches(nn.Module):
    """Another path for other sizes: the export follows one of them."""

    def forward(self, x, y):
        return x[: y.shape[0]] + y if x.shape[0] > y.shape[0] * 2 else x.sum(0) + y


class Checks(nn.Module):
    def forward(self, x):
        torch._check(x.shape[0] % 3 == 0)
        torch._check(x.shape[0] >= 6)
        return x * 2


class Resizes(nn.Module):
    def forward(self, x):
        small = nn.functional.max_pool2d(nn.functional.max_pool2d(x, 2), 2)
        large = nn.functional.interpolate(small, scale_factor=2.0, mode="bilinear")
        return torch.cat([nn.functional.max_pool2d(x, 2), large], 1).mean((2, 3))


CASES: dict[str, tuple[Any, Any, Any, list[Any], list[Any]]] = {
    "a multiple": (Halves(), ((8, 3),), ({0: 2 * H},), [((10, 3),), ((100, 3),)], [((9, 3),), ((2, 3),), ((102, 3),)]),
    "found by itself": (Halves(), ((8, 3),), ({0: AUTO},), [((10, 3),)], [((9, 3),)]),
    "a branch": (Branches(), ((9, 3), (4, 3)), ({0: AUTO}, {0: AUTO}), [((15, 3), (5, 3))], [((5, 3), (4, 3))]),
    "the model's checks": (Checks(), ((9, 3),), ({0: AUTO},), [((12, 3),)], [((7, 3),), ((3, 3),)]),
    "an image": (Resizes(), ((1, 2, 8, 8),), ({2: AUTO, 3: AUTO},), [((1, 2, 12, 16),)], [((1, 2, 10, 8),)]),
}


@pytest.mark.parametrize("name", CASES)
def test_other_sizes_are_refused_before_anything_is_computed(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    module, shapes, dynamic, good, bad = CASES[name]
    path = save(module, tuple(torch.randn(shape) for shape in shapes), tmp_path / "m.pt2", dynamic_shapes=dynamic)
    run = make_run(path)
    compile_model(run.job, run.emit)
    session = Session(run.job.library_path)
    for sizes in good:
        inputs = [torch.randn(shape) for shape in sizes]
        answer = session.run([value.numpy() for value in inputs])[0]
        np.testing.assert_allclose(answer, module(*inputs).numpy(), rtol=1e-4, atol=1e-4)
    for sizes in bad:
        with pytest.raises(CheckFailed, match=r"size\("):
            session.run([np.zeros(shape, np.float32) for shape in sizes])


def program(module: nn.Module, *shapes: Any, dynamic: Any) -> Any:
    return torch.export.export(module, tuple(torch.randn(shape) for shape in shapes), dynamic_shapes=dynamic)


def test_what_follows_from_the_symbols_and_their_ranges_is_not_checked() -> None:
    batch = Dim("batch", min=2)
    same = program(Branches(), (9, 3), (4, 3), dynamic=None)
    assert size_conditions(same) == []
    assert size_conditions(program(nn.Linear(3, 2), (4, 3), dynamic=({0: batch},))) == []


def test_a_condition_reads_as_the_user_would_write_it() -> None:
    (condition,) = [each for each in size_conditions(program(Checks(), (9, 3), dynamic=({0: AUTO},)))]
    assert condition.text == "x.size(0) % 3 == 0"
    (symbol,) = condition.expression.free_symbols
    assert condition.holds({str(symbol): 12})
    assert not condition.holds({str(symbol): 13})
    assert not condition.holds({})
    assert multiples([condition]) == {symbol: 3}


@pytest.mark.parametrize(
    "text", ["__import__('os').system('x')", "L['x'].stride()[0] == 1", "L['y'].size()[0] == 2", "2 **", "L['x'].size()[9] > 1"]
)  # fmt: skip
def test_what_is_no_arithmetic_on_sizes_is_refused_and_never_run(text: str) -> None:
    exported = program(nn.Linear(3, 2), (4, 3), dynamic=({0: AUTO},))
    exported.graph_module.meta[KEPT_IN] = [text]
    with pytest.raises(ImportFailed, match="cannot check"):
        size_conditions(exported)


def test_only_small_tensors_of_constants_are_computed_now() -> None:
    graph = program(Halves(), (8, 3), dynamic=None).graph
    assert not any(is_foldable(node, set()) for node in graph.nodes if node.all_input_nodes)
