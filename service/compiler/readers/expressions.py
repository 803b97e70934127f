"""Symbolic sizes: PyTorch evaluates their text, so only arithmetic on symbols and numbers is let through."""

from __future__ import annotations

import ast
import re

from service.compiler.readers.refusal import shown, unsafe

MAX_CHARACTERS = 20_000
MAX_NODES = 4_000
MAX_DEPTH = 60
MAX_INTEGER = 1 << 63
MAX_EXPONENT = 64

SYMBOL = re.compile(r"(s|u|zuf|zf|symfloat|f)\d{1,6}")

_FUNCTIONS = frozenset(
    [
        "Integer",
        "Float",
        "Rational",
        "Half",
        "One",
        "Zero",
        "NegativeOne",
        "Add",
        "Mul",
        "Pow",
        "Max",
        "Min",
        "Mod",
        "Abs",
        "Equality",
        "Eq",
        "Unequality",
        "Ne",
        "StrictLessThan",
        "LessThan",
        "StrictGreaterThan",
        "GreaterThan",
        "Lt",
        "Le",
        "Gt",
        "Ge",
        "And",
        "Or",
        "Not",
        "ceiling",
        "floor",
        "Piecewise",
        "ExprCondPair",
        "FloorDiv",
        "ModularIndexing",
        "Where",
        "PythonMod",
        "CleanDiv",
        "CeilToInt",
        "FloorToInt",
        "CeilDiv",
        "LShift",
        "RShift",
        "PowByNatural",
        "FloatPow",
        "FloatTrueDiv",
        "IntTrueDiv",
        "IsNonOverlappingAndDenseIndicator",
        "TruncToFloat",
        "TruncToInt",
        "RoundToInt",
        "RoundDecimal",
        "ToFloat",
        "Identity",
    ]
)
# With these the second argument decides how large the result is, and it is computed when it is a number.
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
_CONSTANTS = frozenset({"true", "false", "oo", "int_oo"})
_ASSUMPTIONS = frozenset(
    {"integer", "positive", "nonnegative", "real", "negative", "nonzero", "finite", "even", "odd", "prime", "zero"}
)
_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_expression(text: str, where: str) -> str:
    """The expression, written anew from what was understood of it. Raises UnsafeModel."""
    if len(text) > MAX_CHARACTERS:
        raise unsafe(f"A symbolic expression has {len(text)} characters", where)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _check(tree, where, 0)
        if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
            raise unsafe("A symbolic expression has too many terms", where)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise unsafe(f"The symbolic expression {shown(text)} is no arithmetic", where) from error


def _check(node: ast.expr, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise unsafe("A symbolic expression is nested too deeply", where)
    if isinstance(node, ast.Constant):
        _check_number(node, where)
        return
    if isinstance(node, ast.Name):
        if node.id not in _CONSTANTS and not SYMBOL.fullmatch(node.id):
            raise _refused(node, where)
        return
    for child in _children(node, where):
        _check(child, where, depth + 1)


def _check_number(node: ast.Constant, where: str) -> None:
    fits = type(node.value) in (bool, float) or (type(node.value) is int and abs(node.value) <= MAX_INTEGER)
    if not fits:
        raise _refused(node, where)


def _children(node: ast.expr, where: str) -> list[ast.expr]:
    """The operands of an allowed operation."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _arguments(node, node.func.id, where)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return [node.operand]
    if isinstance(node, ast.BinOp) and isinstance(node.op, _BINARY):
        if isinstance(node.op, ast.Pow):
            _check_exponent(node.right, where)
        return [node.left, node.right]
    if isinstance(node, ast.Compare) and all(isinstance(op, _COMPARISONS) for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Tuple):
        return node.elts
    raise _refused(node, where)


def _arguments(node: ast.Call, name: str, where: str) -> list[ast.expr]:
    if name == "Symbol":
        _check_symbol(node, where)
        return []
    if name == "Float":
        _check_float(node, where)
        return []
    if name not in _FUNCTIONS or node.keywords:
        raise _refused(node, where)
    if name in _POWERS:
        if len(node.args) != 2:
            raise _refused(node, where)
        _check_exponent(node.args[1], where)
    return node.args


def _check_symbol(node: ast.Call, where: str) -> None:
    name = node.args[0] if len(node.args) == 1 else None
    known = all(
        keyword.arg in _ASSUMPTIONS and isinstance(keyword.value, ast.Constant) and type(keyword.value.value) is bool
        for keyword in node.keywords
    )
    if not (known and isinstance(name, ast.Constant) and isinstance(name.value, str) and SYMBOL.fullmatch(name.value)):
        raise _refused(node, where)


def _check_float(node: ast.Call, where: str) -> None:
    text = node.args[0] if len(node.args) == 1 else None
    plain = isinstance(text, ast.Constant) and (
        type(text.value) in (int, float)
        or (isinstance(text.value, str) and re.fullmatch(r"[-+]?[\d.]{1,40}(e[-+]?\d{1,3})?", text.value))
    )
    precise = all(
        keyword.arg == "precision"
        and isinstance(keyword.value, ast.Constant)
        and type(keyword.value.value) is int
        and 0 < keyword.value.value <= 200
        for keyword in node.keywords
    )
    if not (plain and precise):
        raise _refused(node, where)


def _check_exponent(node: ast.expr, where: str) -> None:
    inner = node
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "Integer" and inner.args:
        inner = inner.args[0]
    if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.USub):
        inner = inner.operand
    small = (
        isinstance(inner, ast.Constant) and isinstance(inner.value, (int, float)) and abs(inner.value) <= MAX_EXPONENT
    )
    if not small:
        raise unsafe(f"A symbolic expression has a power {shown(ast.unparse(node))} that is no small number", where)


def _refused(node: ast.expr, where: str) -> Exception:
    return unsafe(f"A symbolic expression has the term {shown(ast.unparse(node))}, which is no arithmetic", where)
