"""A `.pt2` of torch.export.save, read without torch and written anew: only the new file reaches torch.export.load.

Left out are guards (code that torch would run), metadata but source lines, extra files and sample inputs, which are
given as plain values instead; weights and constants that were pickled are written as the raw bytes of their tensors.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler.readers.archive import Archive, ArchiveLimits
from service.compiler.readers.bounded_json import MAX_BYTES, parse_json
from service.compiler.readers.expressions import SYMBOL, check_expression
from service.compiler.readers.operator_names import ALLOWED
from service.compiler.readers.operator_uses import Use, refusal, user_line
from service.compiler.readers.pt2_payloads import Payloads
from service.compiler.readers.pt2_schema import check_value
from service.compiler.readers.refusal import damaged, shown, too_many, unsafe
from service.compiler.readers.torch_file import StoredTensor, TorchFile, open_torch_bytes
from service.errors import DamagedModel, UnsafeModel

MAX_SAMPLE_BYTES = 256 << 20
_MODEL = re.compile(r"models/([A-Za-z0-9_.\-]{1,100})\.json")
_OPERATOR = re.compile(r"torch\.ops\.([a-z_A-Z0-9]+)\.([A-Za-z_0-9]+)(\.[A-Za-z_0-9]+)?")
_HARMLESS = ("extra/", ".data/", "data/", "models/")
_KNOWN = frozenset({"archive_format", "archive_version", "byteorder"})


@dataclass(frozen=True)
class Pt2File:
    """What was read beside the new file. `examples` is (args, kwargs) of plain values and StoredTensor, or None.

    `storages` are the bytes of the examples' tensors by storage name; `guards` what the program says of the sizes of
    its inputs, as text that PyTorch would run.
    """

    program: dict[str, Any]
    examples: Any
    storages: dict[str, bytes] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    guards: tuple[str, ...] = ()


def rewrite_pt2(source: Path, target: Path, limits: ArchiveLimits) -> Pt2File:
    """Checks the file at `source` and writes the clean one to `target`.

    Raises DamagedModel, UnsafeModel, and ImportFailed naming all operators that are not taken.
    """
    with source.open("rb") as file, Archive(file, limits) as archive:
        model = _model_name(archive)
        program = _program(archive, model)
        uses = tuple(_uses(program["graph_module"]["graph"]))
        if len(uses) > limits.nodes:
            raise too_many(len(uses), "nodes", limits.nodes, "RELAXD_NODES")
        _check_operators(uses)
        guards = tuple(program["guards_code"] or ())
        program["guards_code"] = []
        program["opset_version"] = {"aten": program["opset_version"].get("aten", 10)}
        program["graph_module"] |= {"metadata": {}, "treespec_namedtuple_fields": {}}
        payloads = Payloads(archive, model, limits)
        _check_references(program, payloads)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as clean:
            _write(clean, "archive_format", b"pt2")
            _write(clean, "archive_version", b"0")
            _write(clean, "byteorder", b"little")
            _write(clean, ".data/version", b"6\n")
            payloads.write(lambda name: clean.open(_entry(name), "w", force_zip64=True))
            _write(clean, "models/model.json", json.dumps(program).encode())
            _write(clean, "data/sample_inputs/model.pt", b"")
        examples, storages = _examples(archive, model, limits)
        return Pt2File(program, examples, storages, uses, guards)


def operator_uses(source: Path, limits: ArchiveLimits) -> tuple[Use, ...]:
    """Every call of an operator in the program, whether it is taken or not. Raises DamagedModel, UnsafeModel."""
    with source.open("rb") as file, Archive(file, limits) as archive:
        return tuple(_uses(_program(archive, _model_name(archive))["graph_module"]["graph"]))


def _program(archive: Archive, model: str) -> dict[str, Any]:
    parsed = parse_json(archive.read(f"models/{model}.json", MAX_BYTES), "models")
    ranges = parsed.get("range_constraints") if isinstance(parsed, dict) else None
    if isinstance(ranges, dict):
        # Those of expressions, such as 2 * s, follow from their symbols'.
        derived = [key for key in ranges if isinstance(key, str) and not SYMBOL.fullmatch(key)]
        for key in derived:
            check_expression(key, "$.range_constraints")
            del ranges[key]
    program: dict[str, Any] = check_value("ExportedProgram", parsed, "$")
    _check_versions(program)
    return program


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"model/{name}")


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(_entry(name), data)


def _model_name(archive: Archive) -> str:
    models = []
    for name in archive.names:
        if name.startswith("data/aotinductor/") or name.endswith((".so", ".dll", ".dylib", ".cubin")):
            raise unsafe("The archive holds compiled machine code, which PyTorch would load", shown(name))
        match = _MODEL.fullmatch(name)
        if match:
            models.append(match[1])
        elif name not in _KNOWN and not name.startswith(_HARMLESS):
            raise damaged("The archive has an entry that no .pt2 has", shown(name))
    if len(models) != 1:
        raise damaged(f"The archive holds {len(models)} programs. relaxd takes one: torch.export.save(program, path)")
    if archive.read("archive_format", 16) != b"pt2" or archive.read("archive_version", 16) != b"0":
        raise damaged("The archive has a version that PyTorch 2.13 does not read")
    if "byteorder" in archive and archive.read("byteorder", 16) != b"little":
        raise damaged("The archive was written on a machine of another byte order")
    return models[0]


def _check_versions(program: dict[str, Any]) -> None:
    if program["schema_version"]["major"] != 8:
        raise damaged(
            f"The program has the schema version {program['schema_version']['major']}, PyTorch 2.13 has 8. "
            "Export it again with PyTorch 2.13"
        )


def _graphs(graph: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield graph
    for node in graph["nodes"]:
        for given in node["inputs"]:
            inner = given["arg"].get("as_graph")
            if inner is not None:
                yield from _graphs(inner["graph"])


def _uses(graph: dict[str, Any]) -> Iterator[Use]:
    for each in _graphs(graph):
        for node in each["nodes"]:
            modules = node["metadata"].get("nn_module_stack", "").rpartition(";")[2].split(",")
            path = modules[1] if len(modules) == 3 and not modules[1].startswith("_empty_nn_module") else None
            yield Use(node["target"], path, user_line(node["metadata"].get("stack_trace")))


def _check_operators(uses: tuple[Use, ...]) -> None:
    refused = [use for use in uses if use.operator not in ALLOWED]
    for use in refused:
        # torch would look up any attribute of `torch`, `math` or `operator` and call it.
        if not _OPERATOR.fullmatch(use.operator):
            raise unsafe(f"The program calls {shown(use.operator)}, which is no operator", use.source_line or "")
        if use.operator.startswith(("torch.ops.aten.from_file", "torch.ops.aten.save")):
            raise unsafe(f"The program calls {use.operator}, which opens files", use.source_line or "")
    if refused:
        named = [Use(use.operator.removeprefix("torch.ops."), use.module_path, use.source_line) for use in refused]
        raise refusal(named)


def _check_references(program: dict[str, Any], payloads: Payloads) -> None:
    """Every parameter, buffer and constant that the signature names must be there."""
    for spec in program["graph_module"]["signature"]["input_specs"]:
        kind, inner = next(iter(spec.items()))
        if kind == "parameter" or (kind == "buffer" and inner.get("persistent", True)):
            name = inner.get("parameter_name", inner.get("buffer_name"))
            known = payloads.weights
        elif kind in ("buffer", "tensor_constant"):
            name = inner.get("buffer_name", inner.get("tensor_constant_name"))
            known = payloads.constants
        else:
            continue
        if name not in known:
            raise damaged(f"The archive lacks the tensor {shown(name)} that the program uses")


def _examples(archive: Archive, model: str, limits: ArchiveLimits) -> tuple[Any, dict[str, bytes]]:
    """The sample inputs; None when there are none or they are more than plain tensors in built-in containers."""
    name = f"data/sample_inputs/{model}.pt"
    if name not in archive or archive.size(name) == 0 or archive.size(name) > MAX_SAMPLE_BYTES:
        return None, {}
    try:
        saved: TorchFile = open_torch_bytes(archive.read(name, MAX_SAMPLE_BYTES), limits)
    except (DamagedModel, UnsafeModel):
        # They are a convenience: the model itself is whole without them, and random inputs take their place.
        return None, {}
    tree = saved.tree
    call = (
        isinstance(tree, tuple) and len(tree) == 2 and isinstance(tree[0], (tuple, list)) and isinstance(tree[1], dict)
    )
    tensors = list(_stored(tree))
    if not call or None in tensors:
        return None, {}
    return tree, {tensor.storage: saved.storage(tensor) for tensor in tensors if tensor is not None}


def _stored(tree: Any) -> Iterator[StoredTensor | None]:
    """All tensors of a tree; None for anything that is not plain."""
    if isinstance(tree, StoredTensor):
        yield tree
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from _stored(part)
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from _stored(part)
    elif not isinstance(tree, (int, float, str, bool, type(None))):
        yield None
