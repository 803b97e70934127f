"""What a pickle would make, told from its opcodes: they are listed, never executed."""

from __future__ import annotations

import pickletools
import re
from dataclasses import dataclass
from typing import IO

MAX_BYTES = 4 << 20
MAX_OPERATIONS = 60_000

_GRAPH_MODULE = "torch.fx.graph_module.reduce_graph_module"
# What a file of plain tensors refers to.
_OF_TENSORS = re.compile(
    r"torch\._utils\._rebuild_\w+|collections\.OrderedDict|torch\.(storage\.)?\w*Storage|torch\.\w+|"
    r"torch\.serialization\.\w+|numpy\..*|_codecs\.encode|(builtins|__builtin__)\.\w+|argparse\.Namespace"
)


@dataclass(frozen=True)
class PickleFacts:
    """`class_name` is the first class that is no part of a tensor; `devices` are those of the tensors."""

    is_graph_module: bool
    class_name: str | None
    devices: frozenset[str]


def pickle_facts(file: IO[bytes]) -> PickleFacts:
    """Facts about the pickle that `file` starts with, from its first megabytes."""
    names: list[str] = []
    devices: set[str] = set()
    texts: list[str] = []
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(file.read(MAX_BYTES))):
            if count > MAX_OPERATIONS:
                break
            if operation.name == "GLOBAL":
                names.append(str(argument).replace(" ", ".", 1))
            elif operation.name == "STACK_GLOBAL":
                names.append(".".join(texts[-2:]))
            elif isinstance(argument, str):
                texts = [*texts[-1:], argument]
                if re.fullmatch(r"cpu|(cuda|mps|xla|xpu)(:\d+)?", argument):
                    devices.add(argument.partition(":")[0])
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeError, EOFError):
        pass  # cut short by the limit, or damaged: what was seen so far is told
    classes = [name for name in names if not _OF_TENSORS.fullmatch(name)]
    graph = bool(names) and names[0] == _GRAPH_MODULE
    return PickleFacts(graph, classes[0][:200] if classes else None, frozenset(devices))
