"""What a Snapshot says of one function: text, operators, calls, constants, and what it costs by count."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import IRModule, relax, tirx
from tvm.ir import Constant
from tvm.runtime import DataType
from tvm.s_tir.analysis import estimate_tir_flops

from service.compiler.dataflow import is_primitive
from service.errors import JsonObject

# TVM prints what its own parser does not read back.
_NOT_FINITE = re.compile(r'R\.const\("(-?inf|nan)", ')


@dataclass(frozen=True)
class Described:
    """One function as JSON, and how often it calls each other function."""

    entry: JsonObject
    calls: Counter[str]


def describe(name: str, function: Any) -> Described:
    """`function`, which its module knows as `name`.

    ``flops`` and ``bytes_moved`` are given for a TensorIR function of known shapes: arithmetic operations counted by
    TVM's analysis, and the bytes of all parameters, each read or written once, as a cache without limit would have it.
    """
    is_relax = isinstance(function, relax.Function)
    ops, calls, constants = _count(function) if is_relax else (Counter[str](), Counter[str](), [])
    entry: JsonObject = {
        "name": name,
        "kind": "relax" if is_relax else "tensorir",
        "primitive": is_primitive(function),
        "ops": dict(sorted(ops.items())),
        "calls": sorted(calls),
        "bindings": _bindings(function) if is_relax else [],
        "constants": len(constants),
        "constant_bytes": sum((bytes_of(constant.ty.shape, str(constant.ty.dtype)) or 0) for constant in constants),
        "flops": None if is_relax else _flops(function),
        "bytes_moved": None if is_relax else _bytes_moved(function),
        "text": _text(name, function),
    }
    return Described(entry, calls)


def constants_of(mod: IRModule) -> list[Constant]:
    """The tensors that the text of `mod` names as ``metadata["ir.GenericConst"][i]``, in that order."""
    found: dict[Constant, None] = {}
    for _, function in sorted(mod.functions.items(), key=lambda pair: str(pair[0].name_hint)):
        if isinstance(function, relax.Function):
            found |= dict.fromkeys(constant for constant in _count(function)[2] if not _is_inline(constant))
    return list(found)


def readable_back(text: str) -> str:
    """TVMScript with the literals that TVM prints but cannot parse written so that it can."""
    return _NOT_FINITE.sub(r'R.const(float("\1"), ', text)


def _is_inline(constant: Constant) -> bool:
    shape = constant.ty.shape
    return shape is not None and len(shape) == 0


def _text(name: str, function: Any) -> str:
    # By itself a function does not know its name, and prints as `main`.
    lines = function.script(show_meta=False).splitlines()
    start = next((index for index, line in enumerate(lines) if line and not line.startswith("#")), 0)
    end = next((index for index, line in enumerate(lines) if line.startswith("# Metadata omitted")), len(lines))
    text = "\n".join(lines[start:end]).rstrip() + "\n"
    return readable_back(text.replace("def main(", f"def {name}(", 1))


def _count(function: relax.Function) -> tuple[Counter[str], Counter[str], list[Constant]]:
    """How often each Relax operator and each function is called, and the constants, each once."""
    ops: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    mentioned: dict[str, None] = {}
    constants: dict[Constant, None] = {}

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.GlobalVar):
            mentioned[str(expr.name_hint)] = None
        elif isinstance(expr, relax.Call):
            operator = _operator_name(expr.op)
            ops[operator] += 1
            callee = _callee(expr)
            if callee is not None:
                calls[str(callee.name_hint)] += 1
        elif isinstance(expr, Constant) and isinstance(expr.ty, relax.TensorType):
            constants[expr] = None

    relax.analysis.post_order_visit(function, visit)
    return ops, calls | Counter(mentioned.keys()), list(constants)


def _bindings(function: relax.Function) -> list[JsonObject]:
    """The graph of a Relax function: parameters, bindings and results, each with what it reads by name.

    Names are those of the text. A call of a function has it as ``callee``, an item of a tuple its ``index``. For
    `provenance`, ``operands`` and ``arguments`` have the number of a constant in its place.
    """
    names = _Names()
    nodes: list[JsonObject] = [_node(names.of(each), "parameter", each.ty, []) for each in function.params]
    body = function.body
    blocks = body.blocks if isinstance(body, relax.SeqExpr) else []
    for binding in (binding for block in blocks for binding in block.bindings):
        value = binding.value
        operands = [_operand(each, names) for each in _leaves(value)]
        node = _node(names.of(binding.var), _kind_of(value), binding.var.ty, operands)
        if isinstance(value, relax.TupleGetItem):
            node["index"] = int(value.index)
        callee = _callee(value) if isinstance(value, relax.Call) else None
        if callee is not None:
            arguments = [_operand(each, names) for each in _arguments(value)]
            node |= {"callee": str(callee.name_hint), "arguments": arguments}
        nodes.append(node)
    results = [_operand(each, names) for each in _leaves(body.body if isinstance(body, relax.SeqExpr) else body)]
    return [*nodes, _node("return", "return", function.ret_ty, results)]


def _operand(value: Any, names: _Names) -> str | int:
    return names.of(value) if isinstance(value, relax.Var) else hash(value)


class _Names:
    """Variables by the names that the printer gives them: the second `x` is `x_1`."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._taken: set[str] = set()

    def of(self, var: Any) -> str:
        """The name of `var`; the first that asks gets it plain."""
        if var not in self._names:
            hint = str(var.name)
            name = next(each for each in itertools.chain([hint], _numbered(hint)) if each not in self._taken)
            self._taken.add(name)
            self._names[var] = name
        return self._names[var]


def _numbered(hint: str) -> Iterator[str]:
    return (f"{hint}_{number}" for number in itertools.count(1))


def _node(name: str, op: str, type_: Any, operands: list[str | int]) -> JsonObject:
    inputs = [each for each in operands if isinstance(each, str)]
    return {"name": name, "op": op, "type": str(type_), "inputs": inputs, "operands": operands}


def _kind_of(value: Any) -> str:
    return _operator_name(value.op) if isinstance(value, relax.Call) else type(value).__name__


def _callee(call: relax.Call) -> Any:
    target = call.args[0] if _operator_name(call.op) == "call_tir" else call.op
    return target if isinstance(target, relax.GlobalVar) else None


def _arguments(call: relax.Call) -> list[Any]:
    """What a call of a function passes to it."""
    passed = call.args[1] if _operator_name(call.op) == "call_tir" else call.args
    return list(passed.fields if isinstance(passed, relax.Tuple) else passed)


def _leaves(value: Any) -> list[Any]:
    """The variables and constants that an expression reads, in order, through tuples."""
    if isinstance(value, relax.Var | Constant):
        return [value]
    parts: Iterable[Any] = ()
    if isinstance(value, relax.Call):
        parts = value.args
    elif isinstance(value, relax.Tuple):
        parts = value.fields
    elif isinstance(value, relax.TupleGetItem):
        parts = (value.tuple_value,)
    elif isinstance(value, relax.If):
        parts = (value.cond,)
    return [leaf for part in parts for leaf in _leaves(part)]


def _operator_name(operator: Any) -> str:
    if isinstance(operator, relax.ExternFunc):
        return str(operator.global_symbol)
    name = getattr(operator, "name", None)
    if name is None:
        return "call"
    return "call_tir" if name == "relax.call_tir" else str(name)


def _flops(function: tirx.PrimFunc) -> int | None:
    try:
        count = float(estimate_tir_flops(IRModule({"main": function})))
    except Exception:  # noqa: BLE001  the analysis knows plain loops of constant extent, and says so in many ways
        return None
    return round(count) if math.isfinite(count) and count >= 0 else None


def _bytes_moved(function: tirx.PrimFunc) -> int | None:
    buffers = [parameter for parameter in function.params if hasattr(parameter, "shape")]
    sizes = [bytes_of(buffer.shape, str(buffer.dtype)) for buffer in buffers]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def bytes_of(shape: Any, dtype: str) -> int | None:
    """The size of a tensor; None where a size is a symbol."""
    if any(not isinstance(dim, int | tirx.IntImm) for dim in shape):
        return None
    kind = DataType(dtype)
    return math.prod(int(dim) for dim in shape) * -(-int(kind.bits) * int(kind.lanes) // 8)
