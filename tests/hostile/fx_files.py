"""Hostile FX files: graph modules whose pickle or code does more than compute."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.fx.graph_module import reduce_graph_module

from tests.hostile.pt2_files import Touch, code


class Victim(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return torch.relu(self.dense(x)) * self.scale


class Own(nn.Module):
    """A layer of the user's, whose code a loader would need."""


class Saved:
    """Pickles as a graph module with the given state and imports."""

    def __init__(self, body: dict[str, Any], imports: str) -> None:
        self.parts = (body, imports)

    def __reduce__(self) -> Any:
        return (reduce_graph_module, self.parts)


FORWARD = """


def forward(self, x):
    dense = self.dense(x);  x = None
    relu = torch.relu(dense);  dense = None
    scale = self.scale
    mul = relu * scale;  relu = scale = None
    return mul
"""
IMPORTS = "import torch\n"


def saved(edit: Callable[[dict[str, Any]], Any] | None = None, forward: str = FORWARD, imports: str = IMPORTS) -> bytes:
    """The bytes of a graph module whose state was edited, with that forward and those imports."""
    torch.manual_seed(0)
    module = torch.fx.symbolic_trace(Victim().eval())
    body = {key: value for key, value in module.__dict__.items() if key != "_graph"}
    body["_code"] = forward
    if edit is not None:
        edit(body)
    out = io.BytesIO()
    torch.save(Saved(body, imports), out)
    return out.getvalue()


def _line(line: Callable[[Path], str]) -> Callable[[Path], bytes]:
    """A forward with one more line."""
    return lambda marker: saved(forward=FORWARD.replace("    return mul", f"    {line(marker)}\n    return mul"))


def _attribute(name: str, value: Callable[[Path], Any]) -> Callable[[Path], bytes]:
    """A layer with one more attribute."""
    return lambda marker: saved(lambda body: body["_modules"]["dense"].__dict__.update({name: value(marker)}))


def hook(*_: Any) -> None:
    """A function that a hook would be."""


CHANGES: dict[str, Callable[[Path], bytes]] = {
    "body_call": _line(code),
    "body_exec": _line(lambda marker: f"exec({code(marker)!r})"),
    "body_open": _line(lambda marker: f"open({str(marker)!r}, 'w')"),
    "body_load": _line(lambda marker: f"y = torch.load({str(marker)!r})"),
    "body_from_file": _line(lambda marker: f"y = torch.from_file({str(marker)!r}, shared=True, size=4)"),
    "body_to_file": _line(lambda marker: f"y = mul.numpy().tofile({str(marker)!r})"),
    "body_hub": _line(lambda marker: "y = torch.hub.load('a', 'b')"),
    "body_save": _line(lambda marker: f"y = torch.save(mul, {str(marker)!r})"),
    "body_dunder": _line(lambda marker: "y = mul.__class__.__mro__[-1].__subclasses__()"),
    "body_self_dunder": _line(lambda marker: "y = self.__class__.__init__.__globals__"),
    "body_getattr": _line(lambda marker: "y = getattr(mul, '__class__')"),
    "body_hook": _line(lambda marker: "y = mul.register_hook(print)"),
    "body_apply": _line(lambda marker: f"y = mul.map_(mul, lambda a, b: {code(marker)})"),
    "body_lambda": _line(lambda marker: f"y = (lambda: {code(marker)})()"),
    "body_comprehension": _line(lambda marker: f"y = [{code(marker)} for _ in 'a']"),
    "body_f_string": _line(lambda marker: f'y = f"{{{code(marker)}}}"'),
    "body_format": _line(lambda marker: "y = '{0.__class__}'.format(mul)"),
    "body_import": _line(lambda marker: "import os"),
    "body_walrus": _line(lambda marker: f"y = (z := {code(marker)})"),
    "body_star": _line(lambda marker: "y = torch.cat(*[mul])"),
    "body_loop": _line(lambda marker: "\n    while True: pass"),
    "lines_200_000": lambda marker: saved(forward=FORWARD.replace("    return", "    mul = torch.relu(mul)\n" * 200_000 + "    return")),
    "depth": _line(lambda marker: "y = " + "torch.relu(" * 5000 + "mul" + ")" * 5000),
    "huge_tensor": _line(lambda marker: "mul = mul.expand(1099511627776, 3).contiguous()"),
    "huge_constant": _line(lambda marker: "y = torch.zeros(1099511627776)"),
    "huge_power": _line(lambda marker: "y = 9 ** 9 ** 9 ** 9"),
    "default": lambda marker: saved(forward=FORWARD.replace("self, x", f"self, x={code(marker)}")),
    "annotation": lambda marker: saved(forward=FORWARD.replace("self, x", f"self, x: {code(marker)}")),
    "decorator": lambda marker: saved(forward=FORWARD.replace("def forward", f"@({code(marker)} or (lambda f: f))\ndef forward")),
    "beside": lambda marker: saved(forward=FORWARD + f"\n{code(marker)}\n"),
    "two_functions": lambda marker: saved(forward=FORWARD + FORWARD),
    "imports_code": lambda marker: saved(imports=f"import torch\n{code(marker)}\n"),
    "imports_system": lambda marker: saved(
        imports="import torch\nfrom os import system as relu_\n",
        forward=FORWARD.replace("    return mul", f"    y = relu_('touch {marker}')\n    return mul"),
    ),
    "pickled_object": _attribute("extra", Touch),
    "pickled_parameter": lambda marker: saved(lambda body: body["_parameters"].update(evil=Touch(marker))),
    "pickled_layer": lambda marker: saved(lambda body: body["_modules"].update(evil=Touch(marker))),
    "forward_hook": lambda marker: saved(
        lambda body: body["_modules"]["dense"].__dict__.update(_forward_hooks=OrderedDict({0: hook}))
    ),
    "own_layer": lambda marker: saved(lambda body: body["_modules"].update(dense=Own())),
    "hidden_method": _attribute("forward", lambda marker: "x"),
    "dunder_attribute": _attribute("__class__", lambda marker: "x"),
    "function_attribute": _attribute("activation", lambda marker: exec),
}  # fmt: skip
