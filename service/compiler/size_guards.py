"""What an exported program says of the sizes of its inputs, beyond their ranges.

torch.export follows one path through the model and writes down for which sizes it is the right one, as text such as
``(L['x'].size()[0] % 2) == 0``. Eager refuses all other sizes, and so does the library: see `Translation`. The text is
read as arithmetic and never run.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
import torch.utils._pytree as pytree
from torch.export.graph_signature import InputKind
from torch.utils._sympy import functions as torch_sympy
from torch.utils._sympy.value_ranges import bound_sympy

from service.errors import ImportFailed

# Where the importer of a file keeps its guards: PyTorch would run those that it knows of.
KEPT_IN = "size_guards"
_NUMBERED = re.compile(r"(.+)_(\d+)")
MAX_GUARDS = 2_000
MAX_CHARACTERS = 4_000


@dataclass(frozen=True)
class Condition:
    """`expression` is over the symbols of the program; `text` says the same to the user."""

    expression: Any
    text: str

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true of these sizes of symbols. What cannot be told is not true."""
        known = {symbol: sizes.get(str(symbol)) for symbol in self.expression.free_symbols}
        if None in known.values():
            return False
        try:
            return bool(self.expression.subs(known))
        except (TypeError, ZeroDivisionError, AssertionError):
            return False


def size_conditions(program: torch.export.ExportedProgram) -> list[Condition]:
    """All that does not follow from the ranges of the symbols. Raises ImportFailed on what is no arithmetic."""
    texts = list(program.graph_module.meta.get(KEPT_IN) or getattr(program, "_guards_code", None) or ())
    if len(texts) > MAX_GUARDS:
        raise ImportFailed(f"The program has {len(texts)} conditions on the sizes of its inputs.", step=0)
    values = _inputs_by_path(program)
    found = [Condition(_parsed(text, values), _readable(text)) for text in texts]
    for node in program.graph.nodes:
        if str(node.target) == "aten._assert_scalar.default" and isinstance(node.args[0], torch.fx.Node):
            value = node.args[0].meta.get("val")
            if isinstance(value, torch.SymBool):
                found.append(Condition(value.node.expr, str(value.node.expr)))
    return [condition for condition in found if not _follows(condition.expression, program.range_constraints)]


def multiples(conditions: Iterable[Condition]) -> dict[Any, int]:
    """The symbols that the conditions say are multiples, with the largest such factor."""
    found: dict[Any, int] = {}
    for condition in conditions:
        for symbol in condition.expression.free_symbols:
            for factor in _FACTORS:
                divided = torch_sympy.FloorDiv(symbol, factor)
                says = (sympy.Eq(symbol, factor * divided), sympy.Eq(torch_sympy.PythonMod(symbol, factor), 0))
                if condition.expression in says:
                    found[symbol] = math.lcm(found.get(symbol, 1), factor)
    return found


_FACTORS = (2, 3, 4, 5, 6, 7, 8, 14, 16, 32, 64, 128, 256)


def _follows(expression: Any, ranges: Mapping[Any, Any]) -> bool:
    if expression in (sympy.true, True):
        return True
    if not hasattr(expression, "free_symbols"):
        return False
    try:
        known = {symbol: ranges[symbol] for symbol in expression.free_symbols if symbol in ranges}
        bounds = bound_sympy(expression, known)
        return bool(bounds.is_singleton() and bounds.lower == sympy.true)
    except Exception:  # noqa: BLE001 - what PyTorch cannot bound is checked when the library runs
        return False


def _inputs_by_path(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """The fake tensor of each input by the path that guards have for it, such as ``L['x'][0]``."""
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    structure = program.call_spec.in_spec
    if signature is None or structure is None or structure.num_leaves != len(specs):
        return {}
    args, kwargs = pytree.tree_unflatten(list(range(len(specs))), structure)
    names = list(signature.forward_arg_names or ())
    paths: dict[str, Any] = {}
    for name, value in zip(names, [*args, *kwargs.values()], strict=False):
        for keys, index in pytree.tree_flatten_with_path(value)[0]:
            path = f"L[{name!r}]" + "".join(f"[{getattr(key, 'key', getattr(key, 'idx', ''))!r}]" for key in keys)
            tensor = nodes.get(getattr(specs[index].arg, "name", ""))
            paths[path] = tensor
            # Of *args each has a name of its own, such as args_0.
            several = _NUMBERED.fullmatch(name)
            if several is not None:
                paths.setdefault(path.replace(f"L[{name!r}]", f"L[{several[1]!r}][{several[2]}]", 1), tensor)
    return paths


def _parsed(text: str, values: Mapping[str, Any]) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise _refused(text)
    try:
        return _converted(ast.parse(text, mode="eval").body, values, text)
    except (SyntaxError, ValueError, MemoryError, RecursionError, ZeroDivisionError, TypeError) as error:
        raise _refused(text) from error


def _refused(text: str) -> ImportFailed:
    return ImportFailed(
        f"The program holds for certain sizes of its inputs only, by the condition {text[:200]!r}, which relaxd cannot "
        "check. Export it with `dynamic_shapes` that name fewer dimensions.",
        step=0,
    )


def _converted(node: ast.expr, values: Mapping[str, Any], text: str) -> Any:
    """The syntax tree as a sympy expression over the symbols of the inputs. Raises ImportFailed, ValueError."""

    def inner(part: ast.expr) -> Any:
        return _converted(part, values, text)

    if isinstance(node, ast.Compare) and all(type(each) in _RELATIONS for each in node.ops):
        terms = [inner(part) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, terms, terms[1:], strict=False)
        return sympy.And(*[_RELATIONS[type(each)](first, second) for each, first, second in pairs])
    if isinstance(node, ast.BoolOp):
        return (sympy.And if isinstance(node.op, ast.And) else sympy.Or)(*map(inner, node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return sympy.Not(inner(node.operand))
    return _number(node, inner, values, text)


def _number(node: ast.expr, inner: Callable[[ast.expr], Any], values: Mapping[str, Any], text: str) -> Any:
    """As `_converted`, of what is no condition but a number, or True or False."""
    match node:
        case ast.Constant(int(value)):
            found = sympy.sympify(value)
        case ast.Subscript(ast.Call(ast.Attribute(target, "size"), []), ast.Constant(int(axis))):
            found = _size(values.get(_path(target)), axis, text)
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            found = _ARITHMETIC[type(operator)](inner(left), inner(right))
        case ast.UnaryOp(ast.USub(), operand):
            found = -inner(operand)
        case ast.Call(ast.Name("max" | "min" as name), [first, *rest]) if rest:
            join = torch_sympy.Max if name == "max" else torch_sympy.Min
            found = join(inner(first), *map(inner, rest))
        case _:
            raise _refused(text)
    return found


def _path(node: ast.expr) -> str:
    """``L['x'][0]``, or "" for anything else."""
    if isinstance(node, ast.Name):
        return "L" if node.id == "L" else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        before = _path(node.value)
        return f"{before}[{node.slice.value!r}]" if before else ""
    return ""


def _size(value: Any, axis: int, text: str) -> Any:
    if value is None or not axis < value.ndim:
        raise _refused(text)
    size = value.shape[axis]
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(int(size))


def _readable(text: str) -> str:
    """As the user would write it: ``x.size(0) % 2 == 0``."""
    try:
        tree = _Shorter().visit(ast.parse(text, mode="eval"))
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError):
        return text


class _Shorter(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(ast.Name("L"), ast.Constant(name)) if isinstance(name, str) and name.isidentifier():
                return ast.Name(name, ast.Load())
            case ast.Subscript(ast.Call(ast.Attribute(target, "size"), []), axis):
                return ast.Call(ast.Attribute(self.visit(target), "size", ast.Load()), [axis], [])
        return self.generic_visit(node)


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: torch_sympy.FloorDiv,
    ast.Mod: torch_sympy.PythonMod,
}
_RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: sympy.Eq, ast.NotEq: sympy.Ne, ast.Lt: sympy.Lt, ast.LtE: sympy.Le, ast.Gt: sympy.Gt, ast.GtE: sympy.Ge,
}  # fmt: skip
