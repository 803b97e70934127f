"""The code of TorchScript and FX files: read as text, whatever it says."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from service.compiler.readers.archive import ArchiveLimits
from service.compiler.readers.fx_code import Const, Invoke, Ref, read_forward
from service.compiler.readers.fx_names import FUNCTIONS
from service.compiler.readers.script_code import check_code, declared_names, parse_code
from service.compiler.readers.torchscript import rewrite_torchscript
from service.errors import DamagedModel, UnsafeModel
from tests.compiler.readers.honest import convnet
from tests.compiler.readers.test_pt2 import same

FORWARD = "def forward(self, x, y = None):\n    {}\n    return z\n"
WORDS = st.sampled_from(
    ["x", "y", "self", "torch", "relu", ".", "(", ")", "[", "]", ",", "=", "+", "1", "'a'", "getattr", "lambda:", "open",
     "__class__", "operator", "None", "import os", "exec", ":", "\n    ", "z", "ops", "aten", "save", "*", "for", "in"]
)  # fmt: skip


def test_steps_name_what_is_called_and_with_what() -> None:
    program = read_forward(FORWARD.format("z = torch.relu(x);  x = None"), "import torch")
    assert [name for name, _, _ in program.inputs] == ["x", "y"]
    assert program.inputs[1][1:] == (True, Const(None))
    (step,) = program.steps
    assert step.name == "z"
    assert step.value == Invoke("torch.relu", None, (Ref("x"),))
    assert program.result == Ref("z")


def test_imported_names_stand_for_what_they_import() -> None:
    program = read_forward(FORWARD.format("z = operator_add(x, 1)"), "from operator import add as operator_add")
    assert program.steps[0].value.name == "operator.add"


def test_a_graph_of_torch_export_is_told_what_to_do() -> None:
    with pytest.raises(DamagedModel, match=r"torch\.export\.save"):
        read_forward("def forward(self, x):\n    x, = fx_pytree.tree_flatten_spec(x)\n    return x", "import torch")


@given(st.lists(WORDS, max_size=12).map(" ".join))
@settings(max_examples=500, deadline=None)
def test_any_line_of_an_fx_forward_is_refused_or_calls_what_is_allowed(line: str) -> None:
    try:
        program = read_forward(FORWARD.format(f"z = {line}"), "import torch")
    except (DamagedModel, UnsafeModel):
        return
    waiting = [step.value for step in program.steps]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Invoke):
            assert value.name is None or value.target is not None or value.name in FUNCTIONS
            waiting += [value.target, *value.arguments]


@given(st.lists(WORDS, max_size=12).map(" ".join))
@settings(max_examples=500, deadline=None)
def test_any_line_of_a_script_is_refused_or_reaches_no_file(line: str) -> None:
    text = f"class M(Module):\n  training : bool\n  def forward(self, x: Tensor) -> Tensor:\n    z = {line}\n    return z\n"
    name = "code/__torch__.py"
    try:
        tree = parse_code(text, name)
        check_code(tree, name, declared_names(tree))
    except (DamagedModel, UnsafeModel):
        return
    # A name alone is nothing; what is called or looked up must be an operator that computes.
    joined = line.replace(" ", "")
    assert not any(word in joined for word in ("exec(", "open(", ".save", "import", "lambda", ".__class__"))


@pytest.mark.parametrize("kind", ["scripted", "traced"])
def test_a_script_is_the_same_after_rewriting(tmp_path: Path, kind: str) -> None:
    module = convnet().eval()
    x = torch.randn(2, 1, 8, 8)
    script = torch.jit.script(module) if kind == "scripted" else torch.jit.trace(module, x)
    torch.jit.save(script, tmp_path / "m.pt")
    file = rewrite_torchscript(tmp_path / "m.pt", tmp_path / "clean.pt", ArchiveLimits())
    loaded = torch.jit.load(io.BytesIO((tmp_path / "clean.pt").read_bytes()))
    assert same(loaded.state_dict(), script.state_dict())
    assert same(loaded(x), script(x))
    assert (file.traced is not None) == (kind == "traced")


def test_a_line_of_a_script_leads_to_its_author(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(4, 2)), tmp_path / "m.pt")
    file = rewrite_torchscript(tmp_path / "m.pt", tmp_path / "clean.pt", ArchiveLimits())
    with zipfile.ZipFile(tmp_path / "clean.pt") as archive:
        code = [name.partition("/")[2] for name in archive.namelist() if name.endswith(".py")]
    places = {file.sources.locate(name, line) for name in code for line in range(1, 20)}
    assert any("linear.py" in place and "F.linear(input, self.weight, self.bias)" in place for place in places)
