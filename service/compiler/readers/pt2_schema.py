"""The schema of an exported program (PyTorch 2.13, version 8), as data, and the check that a JSON value follows it.

A checked value is written anew: fields that the schema lacks are dropped, and every leaf passes a check by its
meaning, since PyTorch evaluates expressions, pastes names into source that it runs, and looks operators up by
attribute.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from service.compiler.readers.expressions import SYMBOL, check_expression
from service.compiler.readers.names import is_plain_name, is_plain_path
from service.compiler.readers.refusal import damaged, shown, unsafe
from service.compiler.readers.tensors import SCALAR_TYPES
from service.compiler.readers.trees import check_call_tree, check_tree

MAX_DEPTH = 200
MAX_TEXT = 10_000
MAX_INTEGER = 1 << 63

# A field is written `type`, `type?` (may be null or absent), `[type]` (list) or `{key: type}` (dict).
STRUCTS: dict[str, dict[str, str]] = {
    "Device": {"type": "device", "index": "int?"},
    "SymExpr": {"expr_str": "expression", "hint": "SymExprHint?"},
    "TensorMeta": {
        "dtype": "dtype",
        "sizes": "[SymInt]",
        "requires_grad": "bool",
        "device": "Device",
        "strides": "[SymInt]",
        "storage_offset": "SymInt",
        "layout": "layout",
    },
    "TensorArgument": {"name": "name"},
    "GraphArgument": {"name": "name", "graph": "Graph"},
    "ComplexValue": {"real": "float", "imag": "float"},
    "NamedArgument": {"name": "argument_name", "arg": "Argument", "kind": "int?"},
    "Node": {
        "target": "operator",
        "inputs": "[NamedArgument]",
        "outputs": "[Argument]",
        "metadata": "metadata",
        "is_hop_single_tensor_return": "bool?",
        "name": "name?",
    },
    "Graph": {
        "inputs": "[Argument]",
        "outputs": "[Argument]",
        "nodes": "[Node]",
        "tensor_values": "{name: TensorMeta}",
        "sym_int_values": "{name: SymInt}",
        "sym_bool_values": "{name: SymBool}",
        "is_single_tensor_return": "bool",
        "custom_obj_values": "nothing",
        "sym_float_values": "{name: SymFloat}",
    },
    "UserInputSpec": {"arg": "Argument"},
    "InputToConstantInputSpec": {"name": "name", "value": "ConstantValue"},
    "InputToParameterSpec": {"arg": "TensorArgument", "parameter_name": "path"},
    "InputToBufferSpec": {"arg": "TensorArgument", "buffer_name": "path", "persistent": "bool"},
    "InputToTensorConstantSpec": {"arg": "TensorArgument", "tensor_constant_name": "path"},
    "UserOutputSpec": {"arg": "Argument"},
    "LossOutputSpec": {"arg": "TensorArgument"},
    "BufferMutationSpec": {"arg": "TensorArgument", "buffer_name": "path"},
    "ParameterMutationSpec": {"arg": "TensorArgument", "parameter_name": "path"},
    "GradientToParameterSpec": {"arg": "TensorArgument", "parameter_name": "path"},
    "GradientToUserInputSpec": {"arg": "TensorArgument", "user_input_name": "name"},
    "UserInputMutationSpec": {"arg": "TensorArgument", "user_input_name": "name"},
    "GraphSignature": {"input_specs": "[InputSpec]", "output_specs": "[OutputSpec]"},
    "RangeConstraint": {"min_val": "int?", "max_val": "int?"},
    "ModuleCallSignature": {
        "inputs": "[Argument]",
        "outputs": "[Argument]",
        "in_spec": "call_tree",
        "out_spec": "tree",
        "forward_arg_names": "[name]?",
    },
    "ModuleCallEntry": {"fqn": "path", "signature": "ModuleCallSignature?"},
    "GraphModule": {"graph": "Graph", "signature": "GraphSignature", "module_call_graph": "[ModuleCallEntry]"},
    "SchemaVersion": {"major": "int", "minor": "int"},
    "ExportedProgram": {
        "graph_module": "GraphModule",
        "opset_version": "{text: int}",
        "range_constraints": "{symbol: RangeConstraint}",
        "schema_version": "SchemaVersion",
        "verifiers": "[verifier]",
        "torch_version": "text",
        "guards_code": "[text]?",
    },
    "PayloadMeta": {"path_name": "text", "is_param": "bool", "use_pickle": "bool", "tensor_meta": "TensorMeta?"},
    "PayloadConfig": {"config": "{path: PayloadMeta}"},
}

UNIONS: dict[str, dict[str, str]] = {
    "SymExprHint": {"as_int": "int", "as_bool": "bool", "as_float": "float"},
    "SymInt": {"as_expr": "SymExpr", "as_int": "int"},
    "SymFloat": {"as_expr": "SymExpr", "as_float": "float"},
    "SymBool": {"as_expr": "SymExpr", "as_bool": "bool"},
    "SymIntArgument": {"as_name": "name", "as_int": "int"},
    "SymFloatArgument": {"as_name": "name", "as_float": "float"},
    "SymBoolArgument": {"as_name": "name", "as_bool": "bool"},
    "OptionalTensorArgument": {"as_tensor": "TensorArgument", "as_none": "bool"},
    # Without as_custom_obj and as_operator: objects are unpickled, operators looked up by attribute.
    "Argument": {
        "as_none": "bool",
        "as_tensor": "TensorArgument",
        "as_tensors": "[TensorArgument]",
        "as_int": "int",
        "as_ints": "[int]",
        "as_float": "float",
        "as_floats": "[float]",
        "as_string": "text",
        "as_strings": "[text]",
        "as_sym_int": "SymIntArgument",
        "as_sym_ints": "[SymIntArgument]",
        "as_scalar_type": "dtype",
        "as_memory_format": "memory_format",
        "as_layout": "layout",
        "as_device": "Device",
        "as_bool": "bool",
        "as_bools": "[bool]",
        "as_sym_bool": "SymBoolArgument",
        "as_sym_bools": "[SymBoolArgument]",
        "as_graph": "GraphArgument",
        "as_optional_tensors": "[OptionalTensorArgument]",
        "as_sym_float": "SymFloatArgument",
        "as_sym_floats": "[SymFloatArgument]",
        "as_optional_tensor": "OptionalTensorArgument",
        "as_complex": "ComplexValue",
        "as_nested_tensors": "[[TensorArgument]]",
        "as_int_lists": "[[int]]",
        "as_float_lists": "[[float]]",
        "as_string_to_argument": "{argument_name: Argument}",
    },
    "ConstantValue": {"as_none": "bool", "as_int": "int", "as_float": "float", "as_string": "text", "as_bool": "bool"},
    "InputSpec": {
        "user_input": "UserInputSpec",
        "parameter": "InputToParameterSpec",
        "buffer": "InputToBufferSpec",
        "tensor_constant": "InputToTensorConstantSpec",
        "constant_input": "InputToConstantInputSpec",
    },
    "OutputSpec": {
        "user_output": "UserOutputSpec",
        "loss_output": "LossOutputSpec",
        "buffer_mutation": "BufferMutationSpec",
        "gradient_to_parameter": "GradientToParameterSpec",
        "gradient_to_user_input": "GradientToUserInputSpec",
        "user_input_mutation": "UserInputMutationSpec",
        "parameter_mutation": "ParameterMutationSpec",
    },
}

_STACK_LINE = re.compile(r'  File "|File "|    ')
_TARGET = re.compile(r"[A-Za-z0-9_.]{1,200}")


def check_value(kind: str, value: Any, where: str, depth: int = 0) -> Any:
    """`value` with what the schema's type `kind` knows of it. Raises DamagedModel, UnsafeModel."""
    if depth > MAX_DEPTH:
        raise unsafe("The program is nested too deeply", where)
    if kind.endswith("?"):
        return None if value is None else check_value(kind[:-1], value, where, depth)
    if kind[0] in "[{":
        return _check_container(kind, value, where, depth)
    if kind in STRUCTS:
        return _check_struct(kind, value, where, depth)
    if kind in UNIONS:
        return _check_union(kind, value, where, depth)
    return _LEAVES[kind](value, where)


def _check_container(kind: str, value: Any, where: str, depth: int) -> Any:
    if kind[0] == "[":
        if not isinstance(value, list):
            raise _mistyped(value, "a list", where)
        return [check_value(kind[1:-1], part, f"{where}[{index}]", depth + 1) for index, part in enumerate(value)]
    keys, _, values = kind[1:-1].partition(": ")
    if not isinstance(value, dict):
        raise _mistyped(value, "an object", where)
    return {
        _LEAVES[keys](key, where): check_value(values, part, f"{where}.{key[:80]}", depth + 1)
        for key, part in value.items()
    }


def _check_struct(kind: str, value: Any, where: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mistyped(value, f"a {kind}", where)
    checked: dict[str, Any] = {}
    for field, inner in STRUCTS[kind].items():
        if field not in value:
            if not inner.endswith("?") and inner != "nothing" and field not in _LATER_FIELDS:
                raise damaged(f"A {kind} has no {field!r}", where)
            if inner.endswith("?"):
                checked[field] = None
            continue
        checked[field] = check_value(inner, value[field], f"{where}.{field}", depth + 1)
    return checked


# Fields that older files of the same version lack and that have a default.
_LATER_FIELDS = frozenset({"sym_float_values", "is_single_tensor_return", "verifiers", "torch_version", "persistent"})


def _check_union(kind: str, value: Any, where: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) != 1:
        raise _mistyped(value, f"a {kind}", where)
    field, inner = next(iter(value.items()))
    if field not in UNIONS[kind]:
        if field in ("as_custom_obj", "custom_obj", "as_operator", "token"):
            raise unsafe(f"The program has a {field!r}, an object or function that is looked up by name", where)
        raise damaged(f"A {kind} cannot be {shown(field)}", where)
    return {field: check_value(UNIONS[kind][field], inner, f"{where}.{field}", depth + 1)}


def _mistyped(value: Any, wanted: str, where: str) -> Exception:
    return damaged(f"The program has {shown(value)} where {wanted} belongs", where)


def _integer(value: Any, where: str) -> int:
    if type(value) is not int or abs(value) > MAX_INTEGER:
        raise _mistyped(value, "an integer of 64 bits", where)
    return value


def _float(value: Any, where: str) -> float | str:
    # Infinities and NaN are written as words by newer versions.
    if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN"):
        return value
    if type(value) not in (int, float):
        raise _mistyped(value, "a number", where)
    try:
        return float(value)
    except OverflowError as error:
        raise _mistyped(value, "a number of 64 bits", where) from error


def _bool(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise _mistyped(value, "true or false", where)
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise _mistyped(value, "a short text of one line", where)
    return value


def _name(value: Any, where: str) -> str:
    if not is_plain_name(value):
        raise unsafe(f"The name {shown(value)} would become code", where)
    return str(value)


def _argument_name(value: Any, where: str) -> str:
    return "" if value == "" else _keyword_or_name(value, where)


def _keyword_or_name(value: Any, where: str) -> str:
    # `from` is an argument of random_ and others; torch passes it by position.
    return "from" if value == "from" else _name(value, where)


def _path(value: Any, where: str) -> str:
    if not is_plain_path(value):
        raise unsafe(f"The name {shown(value)} would become code", where)
    return str(value)


def _operator(value: Any, where: str) -> str:
    # Its form only; whether it is allowed is decided for all nodes at once, so that all are told at once.
    if not isinstance(value, str) or not (_TARGET.fullmatch(value) or value.startswith("#")):
        raise unsafe(f"The operator {shown(value)} has no plain name", where)
    return value


def _one_of(*values: Any) -> Callable[[Any, str], Any]:
    def check(value: Any, where: str) -> Any:
        if type(value) not in (int, str) or value not in values:
            raise _mistyped(value, f"one of {', '.join(map(str, values))}", where)
        return value

    return check


def _layout(value: Any, where: str) -> int:
    if value != 7 or type(value) is not int:
        raise damaged(
            f"A tensor has the layout {shown(value)}, which is sparse or unknown. relaxd takes dense tensors: "
            "call .to_dense() on it before torch.export.export",
            where,
        )
    return 7


def _device(value: Any, where: str) -> str:
    if value != "cpu":
        raise damaged(
            f"A tensor lies on the device {shown(value)}. Move the model to the CPU before exporting: "
            "model = model.to('cpu'); program = torch.export.export(model.eval(), (example_input.to('cpu'),)); "
            "torch.export.save(program, 'model.pt2')",
            where,
        )
    return "cpu"


def _symbol(value: Any, where: str) -> str:
    if not isinstance(value, str) or not SYMBOL.fullmatch(value):
        raise unsafe(f"The symbol {shown(value)} has no plain name", where)
    return value


def _nothing(value: Any, where: str) -> dict[str, Any]:
    if value:
        raise unsafe("The program has objects of its own classes, which would be unpickled", where)
    return {}


def _clean_metadata(value: Any, where: str) -> dict[str, str]:
    """Of a node's metadata only where it comes from: its source lines and its module."""
    if not isinstance(value, dict):
        raise _mistyped(value, "an object", where)
    kept = {}
    stack = value.get("stack_trace")
    if isinstance(stack, str):
        lines = [line for line in stack[:MAX_TEXT].splitlines() if line.isprintable() and _STACK_LINE.match(line)]
        kept["stack_trace"] = "\n".join(lines)
    modules = value.get("nn_module_stack")
    if isinstance(modules, str) and len(modules) <= MAX_TEXT and modules.isprintable():
        entries = modules.split(";")
        if all(entry.count(",") == 2 and not set(entry) & set("[]()") for entry in entries):
            kept["nn_module_stack"] = modules
    return kept


_LEAVES: dict[str, Callable[[Any, str], Any]] = {
    "metadata": _clean_metadata,
    "int": _integer,
    "float": _float,
    "bool": _bool,
    "text": _text,
    "name": _name,
    "argument_name": _argument_name,
    "path": _path,
    "operator": _operator,
    "symbol": _symbol,
    "dtype": _one_of(*SCALAR_TYPES),
    "memory_format": _one_of(1, 2, 3, 4),
    "layout": _layout,
    "device": _device,
    "verifier": _one_of("ATEN", "TRAINING", ""),
    "nothing": _nothing,
    "expression": lambda value, where: check_expression(_text(value, where), where),
    "tree": lambda value, where: check_tree(value if isinstance(value, str) else "", where),
    "call_tree": lambda value, where: check_call_tree(value if isinstance(value, str) else "", where),
}
