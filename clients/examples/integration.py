"""The lecture on bringing PyTorch models into TVM: tensor functions, emit_te, and a generic translator from torch.fx.

A network is trained, traced into a torch.fx graph, and translated twice by the lecture's translator: into operators of
Relax, and into calls of TensorIR functions at once. Both are compiled, compared and asked for the same predictions.
docs/lectures.md tells the same in prose.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import relaxd
import torch
import torch.fx
from digits import Digits, agreement, convolutional, export, heading, mlp, server_url
from torch import nn

INPUTS = [{"name": "input", "shape": ["batch", 64], "dtype": "float32"}]
OPERATOR_SETS = ("relax", "tensorir")


def traced(model: nn.Module, file: Path) -> Path:
    """The file, with the torch.fx graph of the model; prints the graph."""
    graph = torch.fx.symbolic_trace(model)
    for node in graph.graph.nodes:
        print(f"    {node.op:<13} {node.name:<8} {node.target}")
    torch.save(graph, file)
    return file


def translate(client: relaxd.Client, file: Path, ops: str) -> relaxd.Compilation:
    """The Compilation by the lecture's translator, every step checked against PyTorch."""
    compilation = client.compile(
        file, passes="integration", importing={"translator": "course", "ops": ops}, inputs=INPUTS, verify="every_step"
    )
    print(compilation.table())
    print(compilation.ir("import", function="main"))
    return compilation


def main() -> bool:
    """Runs the tour; whether every prediction was PyTorch's."""
    url = server_url(__doc__.splitlines()[0])
    digits, same = Digits.load(), []
    with relaxd.Client(url) as client, tempfile.TemporaryDirectory() as folder:
        for name, network in (("the MLP", mlp()), ("the convolutional network", convolutional())):
            heading(f"{name}: its torch.fx graph")
            model = digits.train(network)
            file = traced(model, Path(folder) / "model.pt")
            for ops in OPERATOR_SETS:
                heading(f"{name}: import.ops = {ops}")
                compilation = translate(client, file, ops)
                same.append(agreement(compilation, model, digits))
                if ops == "tensorir":
                    heading("a tensor function that emit_te made")
                    print(client.ir(compilation.id, "import", function="dense"))
        heading("a layer that the translator has no rule for")
        same.append(refused(client, Path(folder)))
    return all(same)


def refused(client: relaxd.Client, folder: Path) -> bool:
    """Prints the Problem; whether it names the layer."""
    file = export(nn.Sequential(nn.Linear(4, 4), nn.GELU()), (torch.ones(1, 4),), folder / "gelu.pt2")
    try:
        client.compile(file, importing={"translator": "course"})
    except relaxd.CompilationError as problem:
        print(f"    {problem}")
        return "gelu" in str(problem)
    return False


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
