"""Hostile `.pt2` archives: an honest one with one thing changed. Each would create `marker`, or exhaust a loader."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Files = dict[str, bytes]


class Touch:
    """A pickle that creates the marker when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (exec, (f"open({str(self.marker)!r}, 'w').close()",))


def evil_torch_file(marker: Path) -> bytes:
    out = io.BytesIO()
    torch.save({"x": Touch(marker)}, out)
    return out.getvalue()


class Victim(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 3)
        self.table = torch.ones(3)

    def forward(self, x: Any, *, scale: Any) -> Any:
        return {"out": self.dense(x) * scale + self.table}


def honest_files() -> Files:
    """The entries of an honest archive by their path below the root folder."""
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(
        Victim().eval(),
        (torch.randn(3, 4),),
        {"scale": torch.tensor(2.0)},
        dynamic_shapes={"x": {0: batch}, "scale": None},
    )
    out = io.BytesIO()
    torch.export.save(program, out)
    with zipfile.ZipFile(out) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def pack(files: Files, root: str = "archive") -> bytes:
    """The zip archive of these entries, stored as PyTorch stores them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"{root}/{name}", data)
    return out.getvalue()


Change = Callable[[Files, Path], Files | bytes]
CHANGES: dict[str, Change] = {}


def change(function: Change) -> Change:
    CHANGES[function.__name__] = function
    return function


def program(files: Files, edit: Callable[[Any], Any]) -> Files:
    """The files with `edit` done to the program's JSON."""
    value = json.loads(files["models/model.json"])
    edit(value)
    return {**files, "models/model.json": json.dumps(value).encode()}


def config(files: Files, folder: str, edit: Callable[[Any], Any]) -> Files:
    name = f"data/{folder}/model_{folder}_config.json"
    value = json.loads(files[name])
    edit(value["config"])
    return {**files, name: json.dumps(value).encode()}


def graph(value: Any) -> Any:
    return value["graph_module"]["graph"]


def code(marker: Path) -> str:
    return f"__import__('os').system('touch {marker}')"


@change
def pickled_weight(files: Files, marker: Path) -> Files:
    files = config(files, "weights", lambda table: table["dense.bias"].update(use_pickle=True))
    return {**files, "data/weights/weight_1": evil_torch_file(marker)}


@change
def pickled_constant(files: Files, marker: Path) -> Files:
    files = config(files, "constants", lambda table: table["table"].update(use_pickle=True))
    return {**files, "data/constants/tensor_0": evil_torch_file(marker)}


@change
def legacy_weights(files: Files, marker: Path) -> Files:
    return {**files, "data/weights/model.pt": evil_torch_file(marker)}


@change
def legacy_constants(files: Files, marker: Path) -> Files:
    return {**files, "data/constants/model.pt": evil_torch_file(marker)}


@change
def legacy_bare_pickle(files: Files, marker: Path) -> Files:
    return {**files, "data/weights/model.pt": pickle.dumps(Touch(marker))}


@change
def sample_inputs(files: Files, marker: Path) -> Files:
    return {**files, "data/sample_inputs/model.pt": evil_torch_file(marker)}


@change
def sample_inputs_bare(files: Files, marker: Path) -> Files:
    return {**files, "data/sample_inputs/model.pt": pickle.dumps(Touch(marker))}


@change
def opaque_object(files: Files, marker: Path) -> Files:
    files = config(files, "constants", lambda table: table["table"].update(path_name="opaque_obj_0", use_pickle=True))
    return {**files, "data/constants/opaque_obj_0": pickle.dumps(Touch(marker))}


@change
def custom_object(files: Files, marker: Path) -> Files:
    files = config(files, "constants", lambda table: table["table"].update(path_name="custom_obj_0", use_pickle=True))
    return {**files, "data/constants/custom_obj_0": evil_torch_file(marker)}


@change
def path_out_of_the_archive(files: Files, marker: Path) -> Files:
    return config(files, "weights", lambda table: table["dense.bias"].update(path_name="../../../etc/passwd"))


@change
def machine_code(files: Files, marker: Path) -> Files:
    return {**files, "data/aotinductor/model/wrapper.so": b"\x7fELF" + bytes(100)}


@change
def machine_code_in_extra(files: Files, marker: Path) -> Files:
    return {**files, "extra/wrapper.so": b"\x7fELF" + bytes(100)}


def _expression(text: str) -> Change:
    def edit(value: Any) -> None:
        for meta in graph(value)["tensor_values"].values():
            for size in meta["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = text

    return lambda files, marker: program(files, edit)


@change
def expression_import(files: Files, marker: Path) -> Files:
    return _expression(code(marker))(files, marker)  # type: ignore[return-value]


@change
def expression_attribute(files: Files, marker: Path) -> Files:
    return _expression(f"Symbol('s0').__class__.__mro__[-1].__subclasses__() or {code(marker)}")(files, marker)  # type: ignore[return-value]


@change
def expression_lambda(files: Files, marker: Path) -> Files:
    return _expression(f"(lambda: {code(marker)})()")(files, marker)  # type: ignore[return-value]


@change
def expression_in_a_symbol(files: Files, marker: Path) -> Files:
    return _expression(f'Symbol("s0\').{code(marker)}#")')(files, marker)  # type: ignore[return-value]


@change
def expression_power(files: Files, marker: Path) -> Files:
    return _expression("Pow(Integer(10), Pow(Integer(10), Integer(10)))")(files, marker)  # type: ignore[return-value]


@change
def expression_shift(files: Files, marker: Path) -> Files:
    return _expression("LShift(Integer(1), Integer(99999999999))")(files, marker)  # type: ignore[return-value]


@change
def guards(files: Files, marker: Path) -> Files:
    return program(files, lambda value: value.update(guards_code=[code(marker)]))


def _renamed(files: Files, old: str, new: str) -> Files:
    text = files["models/model.json"].decode()
    return {**files, "models/model.json": text.replace(json.dumps(old), json.dumps(new)).encode()}


@change
def input_name(files: Files, marker: Path) -> Files:
    return _renamed(files, "x", f"x={code(marker)}")


@change
def node_name(files: Files, marker: Path) -> Files:
    return _renamed(files, "linear", f"linear = {code(marker)}; linear")


@change
def keyword_name(files: Files, marker: Path) -> Files:
    return _renamed(files, "x", "lambda")


@change
def parameter_name(files: Files, marker: Path) -> Files:
    name = f'dense").__class__ or {code(marker)} or getattr(self, "bias'
    files = config(files, "weights", lambda table: table.update({name: table.pop("dense.bias")}))
    return _renamed(files, "dense.bias", name)


@change
def parameter_dunder(files: Files, marker: Path) -> Files:
    files = config(files, "weights", lambda table: table.update({"__class__.x": table.pop("dense.bias")}))
    return _renamed(files, "dense.bias", "__class__.x")


def _tree(edit: Callable[[Any], Any], which: str = "in_spec") -> Change:
    def change_program(value: Any) -> None:
        signature = value["graph_module"]["module_call_graph"][0]["signature"]
        tree = json.loads(signature[which])
        edit(tree[1])
        signature[which] = json.dumps(tree)

    return lambda files, marker: program(files, change_program)


@change
def tree_enum(files: Files, marker: Path) -> Files:
    context = json.dumps([{"__enum__": True, "fqn": "tests.hostile.landmine:Boom", "name": "X"}])
    return _tree(lambda tree: tree.update(type="builtins.dict", context=context), "out_spec")(files, marker)  # type: ignore[return-value]


@change
def tree_module(files: Files, marker: Path) -> Files:
    context = json.dumps(
        {"default_factory_module": "tests.hostile.landmine", "default_factory_name": "X", "dict_context": ["out"]}
    )
    return _tree(lambda tree: tree.update(type="collections.defaultdict", context=context), "out_spec")(files, marker)  # type: ignore[return-value]


@change
def tree_keyword(files: Files, marker: Path) -> Files:
    names = json.dumps([f"scale={code(marker)}"])
    return _tree(lambda tree: tree["children_spec"][1].update(context=names))(files, marker)  # type: ignore[return-value]


@change
def tree_deep(files: Files, marker: Path) -> Files:
    def edit(tree: Any) -> None:
        leaf: Any = {"type": None, "context": None, "children_spec": []}
        for _ in range(150):
            leaf = {"type": "builtins.list", "context": "null", "children_spec": [leaf]}
        tree["children_spec"] = [leaf]
        tree.update(type="builtins.list", context="null")

    return _tree(edit, "out_spec")(files, marker)  # type: ignore[return-value]


@change
def argument_names(files: Files, marker: Path) -> Files:
    def edit(value: Any) -> None:
        value["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [f"x={code(marker)}", "scale"]

    return program(files, edit)


def _target(target: str, arguments: list[Any] | None = None) -> Change:
    def edit(value: Any) -> None:
        node = graph(value)["nodes"][0]
        node["target"] = target
        if arguments is not None:
            node["inputs"] = arguments

    return lambda files, marker: program(files, edit)


def _text(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "arg": {"as_string": value}, "kind": 1}


@change
def operator_of_torch(files: Files, marker: Path) -> Files:
    return _target("torch.serialization.load", [_text("f", str(marker))])(files, marker)  # type: ignore[return-value]


@change
def operator_of_math(files: Files, marker: Path) -> Files:
    return _target("math.__loader__.load_module", [_text("name", "tests.hostile.landmine")])(files, marker)  # type: ignore[return-value]


@change
def operator_from_file(files: Files, marker: Path) -> Files:
    arguments = [
        _text("filename", str(marker)),
        {"name": "shared", "arg": {"as_bool": True}, "kind": 1},
        {"name": "size", "arg": {"as_int": 16}, "kind": 1},
    ]
    return _target("torch.ops.aten.from_file.default", arguments)(files, marker)  # type: ignore[return-value]


@change
def operator_save(files: Files, marker: Path) -> Files:
    return _target("torch.ops.aten.save.default", [_text("filename", str(marker))])(files, marker)  # type: ignore[return-value]


@change
def operator_custom(files: Files, marker: Path) -> Files:
    return _target("torch.ops.evil.run.default")(files, marker)  # type: ignore[return-value]


@change
def operator_extension(files: Files, marker: Path) -> Files:
    return _target("#evil:run")(files, marker)  # type: ignore[return-value]


@change
def operator_as_argument(files: Files, marker: Path) -> Files:
    arguments = [{"name": "f", "arg": {"as_operator": "torch.hub.load"}, "kind": 1}]
    return _target("torch.ops.higher_order.cond", arguments)(files, marker)  # type: ignore[return-value]


@change
def object_as_argument(files: Files, marker: Path) -> Files:
    arguments = [{"name": "f", "arg": {"as_custom_obj": {"name": "x", "class_fqn": "evil"}}, "kind": 1}]
    return _target("torch.ops.aten.relu.default", arguments)(files, marker)  # type: ignore[return-value]


def _metadata(key: str, text: Callable[[Path], str]) -> Change:
    def change_metadata(files: Files, marker: Path) -> Files:
        return program(files, lambda value: graph(value)["nodes"][0]["metadata"].update({key: text(marker)}))

    return change_metadata


CHANGES["metadata_stack"] = _metadata("stack_trace", lambda marker: f'File "a", line 1\n{code(marker)}')
CHANGES["metadata_source"] = _metadata("source_fn_stack", lambda marker: "x,torch.serialization.load")
CHANGES["metadata_custom"] = _metadata("custom", lambda marker: "[" * 100_000)
CHANGES["metadata_modules"] = _metadata("nn_module_stack", lambda marker: "(" * 50 + ",,")


def _weight(**meta: Any) -> Change:
    return lambda files, marker: config(files, "weights", lambda table: table["dense.bias"]["tensor_meta"].update(meta))


def _sizes(*sizes: int) -> list[dict[str, int]]:
    return [{"as_int": size} for size in sizes]


CHANGES["window_outside"] = _weight(sizes=_sizes(1 << 20), strides=_sizes(1))
CHANGES["window_offset"] = _weight(storage_offset={"as_int": 1 << 20})
CHANGES["window_negative"] = _weight(strides=_sizes(-1))
CHANGES["window_endless"] = _weight(sizes=_sizes(1 << 40, 1 << 20), strides=_sizes(0, 0))
CHANGES["window_overflow"] = _weight(sizes=_sizes(1 << 62, 1 << 62), strides=_sizes(1 << 62, 1 << 62))


@change
def empty_storage(files: Files, marker: Path) -> Files:
    files = config(files, "weights", lambda table: table["dense.bias"]["tensor_meta"].update(sizes=_sizes(1 << 40)))
    return {**files, "data/weights/weight_1": b""}


@change
def symbol_count(files: Files, marker: Path) -> Files:
    return program(
        files, lambda value: value["range_constraints"].update({"u99999999999": {"min_val": 0, "max_val": 1}})
    )


@change
def verifier(files: Files, marker: Path) -> Files:
    return program(files, lambda value: value.update(verifiers=["EVIL"]))


@change
def json_depth(files: Files, marker: Path) -> Files:
    return {**files, "models/model.json": b"[" * 1_000_000}


@change
def json_values(files: Files, marker: Path) -> Files:
    return {**files, "models/model.json": b"[" + b"0," * 5_000_000 + b"0]"}


@change
def graph_depth(files: Files, marker: Path) -> Files:
    def edit(value: Any) -> None:
        inner = json.loads(json.dumps(graph(value)))
        for _ in range(60):
            outer = json.loads(json.dumps(graph(value)))
            outer["nodes"] = outer["nodes"][:1]
            outer["nodes"][0]["inputs"] = [{"name": "", "arg": {"as_graph": {"name": "g", "graph": inner}}, "kind": 1}]
            inner = outer
        value["graph_module"]["graph"] = inner

    return program(files, edit)


@change
def nodes_200_000(files: Files, marker: Path) -> Files:
    def edit(value: Any) -> None:
        nodes = graph(value)["nodes"]
        value["graph_module"]["graph"]["nodes"] = nodes[:1] * 200_000 + nodes

    return program(files, edit)


@change
def input_of_a_petabyte(files: Files, marker: Path) -> Files:
    def edit(value: Any) -> None:
        for meta in graph(value)["tensor_values"].values():
            meta["sizes"] = [{"as_int": 1 << 50}]
            meta["strides"] = [{"as_int": 1}]

    return program(files, edit)


@change
def traversal(files: Files, marker: Path) -> Files:
    return {**files, f"data/../../../../{marker}": b"x"}


@change
def two_programs(files: Files, marker: Path) -> Files:
    return {**files, "models/other.json": files["models/model.json"]}


@change
def duplicate_entries(files: Files, marker: Path) -> bytes:
    out = io.BytesIO(pack(files))
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(out, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("archive/models/model.json", b"{}")
    return out.getvalue()


@change
def symlink(files: Files, marker: Path) -> bytes:
    out = io.BytesIO(pack(files))
    with zipfile.ZipFile(out, "a") as archive:
        info = zipfile.ZipInfo("archive/data/weights/weight_9")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return out.getvalue()


@change
def bomb(files: Files, marker: Path) -> bytes:
    out = io.BytesIO(pack(files))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("archive/data/weights/weight_9", bytes(64 << 20), zipfile.ZIP_DEFLATED)
    return out.getvalue()


@change
def overlap(files: Files, marker: Path) -> bytes:
    """Two entries of the directory that point at one place, as in an archive that unpacks to far more than it holds."""
    data = bytearray(pack(files))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        first = archive.infolist()[0].header_offset
    places = [index for index in range(len(data) - 4) if data[index : index + 4] == b"PK\x01\x02"]
    struct.pack_into("<I", data, places[-1] + 42, first)
    return bytes(data)


@change
def too_many_entries(files: Files, marker: Path) -> Files:
    return {**files, **{f"extra/{index}": b"" for index in range(100_001)}}


def hostile_pt2(name: str, files: Files, marker: Path) -> bytes:
    """The hostile archive of that name."""
    changed = CHANGES[name](dict(files), marker)
    return changed if isinstance(changed, bytes) else pack(changed)
