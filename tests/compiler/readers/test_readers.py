"""What holds for all readers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from service.compiler.readers.fx_names import CONSTANTS, FUNCTIONS, LAYERS
from service.compiler.readers.operator_names import ALLOWED, ATEN_NAMES
from service.compiler.readers.operator_uses import Use, refusal, unsupported_list, user_line

FOLDER = Path(__file__).parents[3] / "service" / "compiler" / "readers"


def test_no_reader_imports_torch() -> None:
    names = [f"service.compiler.readers.{path.stem}" for path in FOLDER.glob("*.py")]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
    code += "assert not {'torch', 'tvm', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=FOLDER.parents[2])


def test_every_allowed_operator_exists_and_computes() -> None:
    for name in ALLOWED:
        if name.startswith("torch.ops.aten."):
            _, _, _, operator, overload = name.split(".")
            found = getattr(getattr(torch.ops.aten, operator), overload)
            kinds = {str(argument.type) for argument in found._schema.arguments}
            assert not {kind for kind in kinds if "torch.classes" in kind or "Storage" in kind or "Stream" in kind}, (
                name
            )
    assert not {"from_file", "save", "set_", "set_data", "resize_", "_reshape_alias"} & ATEN_NAMES


def test_no_allowed_function_of_fx_reaches_beyond_tensors() -> None:
    for word in ("load", "save", "hub", "compile", "jit", "file", "exec", "eval", "import", "open", "pickle", "system"):
        assert not [name for name in FUNCTIONS | CONSTANTS if name.rpartition(".")[2] == word]
    for layer in LAYERS - {"NonDynamicallyQuantizableLinear"}:
        assert issubclass(getattr(torch.nn, layer), torch.nn.Module)


def test_the_users_line_is_the_innermost_of_his_own() -> None:
    trace = 'File "/home/me/net.py", line 7, in forward\n    y = self.a(x)\n  File "/lib/torch/nn/linear.py", line 134, in forward\n    F.linear'
    assert user_line(trace) == "net.py:7: y = self.a(x)"
    assert user_line(None) is None


def test_all_refused_operators_are_told_with_count_and_first_place() -> None:
    uses = [Use("aten.a.default", "m", "f.py:1: a"), Use("evil.b.default"), Use("aten.a.default", "n", "f.py:2: a")]
    entries = unsupported_list(uses)
    assert [(entry["operator"], entry["count"], entry["module_path"]) for entry in entries] == [
        ("aten.a.default", 2, "m"),
        ("evil.b.default", 1, None),
    ]
    assert "custom operator" in entries[1]["hint"]
    problem = refusal(uses)
    assert problem.extensions["operators"] == ["aten.a.default", "evil.b.default"]
    assert "aten.a.default (2), evil.b.default (1)" in problem.detail
    assert "aten.a.default in 'm' (f.py:1: a)" in problem.detail
