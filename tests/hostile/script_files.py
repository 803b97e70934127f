"""Hostile TorchScript archives: scripts that reach files, and honest ones with one thing changed."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.hostile.pt2_files import Touch, pack

Files = dict[str, bytes]


class Reads(nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_file(self.path, True, 4)


class Writes(nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, self.path)
        return x


class AtLoad(nn.Module):
    """Its __setstate__ runs inside torch.jit.load."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    @torch.jit.export
    def __getstate__(self) -> str:
        return self.path

    @torch.jit.export
    def __setstate__(self, state: str) -> None:
        self.path = state
        self.training = False
        torch.save(torch.ones(1), state)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def scripted(module: nn.Module) -> Files:
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(module.eval()), out)
    with zipfile.ZipFile(out) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def honest_files() -> Files:
    """The entries of an honest archive."""
    torch.manual_seed(0)
    return scripted(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))


def _code_name(files: Files) -> str:
    return next(name for name in files if "linear" in name and name.endswith(".py"))


def _code(old: str, new: Callable[[Path], str]) -> Callable[[Files, Path], Files]:
    def change(files: Files, marker: Path) -> Files:
        name = _code_name(files)
        text = files[name].decode()
        assert old in text
        return {**files, name: text.replace(old, new(marker)).encode()}

    return change


CALL = "torch.linear(input, weight, bias)"
CHANGES: dict[str, Callable[[Files, Path], Files | bytes]] = {
    "from_file": lambda files, marker: scripted(Reads(str(marker))),
    "save": lambda files, marker: scripted(Writes(str(marker))),
    "set_state": lambda files, marker: scripted(AtLoad(str(marker))),
    "save_method": _code(CALL, lambda marker: f'(torch.linear(input, weight, bias)).save("{marker}")'),
    "ops_from_file": _code(CALL, lambda marker: f'ops.aten.from_file("{marker}", True, 4)'),
    "ops_save": _code(CALL, lambda marker: f'ops.aten.save(input, "{marker}")'),
    "alias_of_torch": _code(CALL, lambda marker: f't.from_file("{marker}", True, 4)\n    t = torch'),
    "alias_of_ops": _code(
        "    return torch", lambda marker: f'    o = ops.aten\n    y = o.save(input, "{marker}")\n    return torch'
    ),
    "function_value": _code(
        "    return torch", lambda marker: f'    f = torch.from_file\n    y = f("{marker}", True, 4)\n    return torch'
    ),
    "custom_operator": _code(CALL, lambda marker: "ops.evil.run(input)"),
    "custom_class": _code(CALL, lambda marker: "__torch__.torch.classes.evil.Box(input)"),
    "import": _code("class Linear", lambda marker: "import os\nclass Linear"),
    "lambda": _code(CALL, lambda marker: "(lambda: input)()"),
    "getattr": _code(CALL, lambda marker: f'getattr(input, "save")("{marker}")'),
    "eval": _code(CALL, lambda marker: f"eval(\"open('{marker}', 'w')\")"),
    "data_pickle": lambda files, marker: {**files, "data.pkl": pickle.dumps(Touch(marker), 2)},
    "constants_pickle": lambda files, marker: {**files, "constants.pkl": pickle.dumps((Touch(marker),), 2)},
    "foreign_class": lambda files, marker: {**files, "data.pkl": pickle.dumps(Path("x"), 2)},
    "debug_pickle": lambda files, marker: {**files, f"{_code_name(files)}.debug_pkl": pickle.dumps(Touch(marker), 2)},
    "traced_pickle": lambda files, marker: {**files, "traced_inputs.pkl": pickle.dumps(Touch(marker), 2)},
    "tensor_outside": lambda files, marker: {**files, "data/0": files["data/0"][:8]},
    "traversal": lambda files, marker: {**files, f"data/../../../..{marker}": b"x"},
    "machine_code": lambda files, marker: {**files, "lib/evil.so": b"\x7fELF"},
    "bomb": lambda files, marker: bomb(files),
    "lines_200_000": _code(
        "    return torch", lambda marker: "    input = torch.relu(input)\n" * 200_000 + "    return torch"
    ),
    "depth": _code(CALL, lambda marker: "torch.relu(" * 5000 + "input" + ")" * 5000),
    "loop_without_end": _code(
        "    return torch", lambda marker: "    while True:\n      input = torch.relu(input)\n    return torch"
    ),
    "huge_tensor": _code(CALL, lambda marker: "torch.zeros([1099511627776], dtype=None)"),
    "no_code": lambda files, marker: {name: data for name, data in files.items() if not name.startswith("code/")},
}


def bomb(files: Files) -> bytes:
    """An archive of few bytes that unpacks to many."""
    out = io.BytesIO(pack(files))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("archive/data/9", bytes(256 << 20), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def hostile_script(name: str, files: Files, marker: Path) -> bytes:
    """The hostile archive of that name."""
    changed: Any = CHANGES[name](dict(files), marker)
    return changed if isinstance(changed, bytes) else pack(changed)
