"""The generated source of an FX graph, read as what it always is: a list of assignments of calls.

Nothing is compiled or run. What comes out names layers, functions and methods from the allowlist, and how their
results feed each other.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from service.compiler.readers.fx_names import CONSTANTS, FUNCTIONS, METHODS, PROPERTIES
from service.compiler.readers.names import is_plain_name
from service.compiler.readers.operator_uses import Use, refusal
from service.compiler.readers.refusal import damaged, shown, unsafe

MAX_CHARACTERS = 16 << 20
MAX_NODES = 1_000_000
MAX_DEPTH = 60

# What stands here and is not taken is an operator that is not known, and nothing worse.
OPERATOR_MODULES = ("torch.nn.functional.", "torch.functional.", "torch.linalg.", "torch.fft.", "torch.special.",
                    "torch._C._nn.", "torch._C._linalg.", "torch._C._fft.", "torch._C._special.")  # fmt: skip

Expression = Any  # one of the dataclasses below; a tuple, list, dict or slice of them is a Group


@dataclass(frozen=True)
class Ref:
    """A result or input by its name."""

    name: str


@dataclass(frozen=True)
class Const:
    """A plain value: a number, text, None, Ellipsis."""

    value: Any


@dataclass(frozen=True)
class Named:
    """A constant of PyTorch or math by its name, such as ``torch.float32``."""

    name: str


@dataclass(frozen=True)
class Group:
    """A ``tuple``, ``list``, ``slice`` or ``dict`` (keys and values alternate) of parts."""

    kind: str
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Attribute:
    """A tensor of the module, or a layer where it is called, by its path."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Invoke:
    """A call: of a function by `name`; of a method `name` of `target`; of a layer `target` when `name` is None."""

    name: str | None
    target: Expression
    arguments: tuple[Expression, ...]
    keywords: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True)
class Property:
    """A property of a result, such as its shape."""

    target: Expression
    name: str


@dataclass(frozen=True)
class Step:
    """``name = value``; `name` is None for a call whose result is not used."""

    name: str | None
    value: Expression
    line: int


@dataclass(frozen=True)
class FxProgram:
    """A forward: its inputs with whether they have a default, its steps, and what it returns."""

    inputs: tuple[tuple[str, bool, Expression], ...]
    steps: tuple[Step, ...]
    result: Expression
    lines: tuple[str, ...] = field(default=(), repr=False)


_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and_",
    ast.BitOr: "or_", ast.BitXor: "xor",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Is: "is_",
    ast.IsNot: "is_not",
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not_"}


def read_forward(code: str, imports: str) -> FxProgram:
    """The forward that `code` defines, with the names that the import block gives. Raises DamagedModel, UnsafeModel,
    ImportFailed naming an operator.
    """
    if len(code) + len(imports) > MAX_CHARACTERS:
        raise unsafe(f"The code has more than {MAX_CHARACTERS} characters")
    if "fx_pytree" in code:
        raise damaged(
            "The graph module takes or gives nested containers, or comes from torch.export. Make a .pt2 instead: "
            "program = torch.export.export(model.eval(), (example_input,)); torch.export.save(program, 'model.pt2')"
        )
    return _Reader(_aliases(imports)).read(_parse(code), code)


def _parse(code: str) -> ast.Module:
    try:
        tree = ast.parse(code)
        if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
            raise unsafe("The code has too many parts")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise damaged(f"The code cannot be parsed: {shown(str(error))}") from error
    return tree


def _aliases(imports: str) -> dict[str, str]:
    """What each name of the import block stands for; the imports themselves are never done."""
    names: dict[str, str] = {"torch": "torch", "inf": "math.inf", "nan": "math.nan"}
    for node in _parse(imports).body:
        if isinstance(node, ast.Import):
            for entry in node.names:
                names[entry.asname or entry.name.partition(".")[0]] = (
                    entry.name if entry.asname else entry.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for entry in node.names:
                names[entry.asname or entry.name] = f"{node.module}.{entry.name}"
        elif not (isinstance(node, ast.Assign) and ast.unparse(node) == "NoneType = type(None)"):
            raise unsafe(f"The import block has {shown(ast.unparse(node))}", f"line {node.lineno}")
    return names


class _Reader:
    """Turns the syntax tree of one forward into steps."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self._aliases = aliases
        self._known: set[str] = set()
        self._line = 0
        self._lines: list[str] = []

    def read(self, tree: ast.Module, code: str) -> FxProgram:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        others = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.Pass))]
        if len(functions) != 1 or functions[0].name != "forward" or others or functions[0].decorator_list:
            what = ast.unparse(others[0]) if others else "more or less than one forward"
            raise unsafe(f"The code has {shown(what)} beside its forward")
        forward = functions[0]
        self._lines = code.splitlines()
        inputs = self._inputs(forward.args)
        steps: list[Step] = []
        for node in forward.body:
            self._line = node.lineno
            if isinstance(node, ast.Return):
                result = self._expression(node.value, 0) if node.value is not None else Const(None)
                return FxProgram(inputs, tuple(steps), result, tuple(self._lines))
            steps.extend(self._statement(node))
        raise damaged("The forward returns nothing")

    def _inputs(self, arguments: ast.arguments) -> tuple[tuple[str, bool, Expression], ...]:
        if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
            raise damaged("The forward takes a number of inputs that is not fixed. Trace it with named inputs")
        names = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
        if not names or names[0] != "self":
            raise damaged("The forward has no self")
        defaults: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
        defaults += [*arguments.defaults, *arguments.kw_defaults]
        inputs = []
        for name, default in list(zip(names, defaults, strict=True))[1:]:
            self._name(name)
            value = Const(None) if default is None else self._expression(default, 0)
            inputs.append((name, default is not None, value))
        return tuple(inputs)

    def _statement(self, node: ast.stmt) -> list[Step]:
        if isinstance(node, ast.Pass):
            return []
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                return []
            return [Step(None, self._expression(node.value, 0), node.lineno)]
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and type(node.op) in _BINARY:
            target = self._expression(ast.Name(node.target.id, ast.Load()), 0)
            name = "operator.i" + _BINARY[type(node.op)].rstrip("_")
            return [Step(node.target.id, self._function(name, [target, self._expression(node.value, 0)]), node.lineno)]
        if isinstance(node, ast.Assign):
            return self._assign(node.targets, node.value, node.lineno)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return self._assign([node.target], node.value, node.lineno)
        raise self._unsafe(node, "a statement that FX never writes")

    def _assign(self, targets: list[ast.expr], value: ast.expr, line: int) -> list[Step]:
        if not all(isinstance(target, ast.Name) for target in targets):
            raise self._unsafe(targets[0], "an assignment to what is no name")
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if isinstance(value, ast.Constant) and value.value is None:
            return []  # FX frees what it no longer needs
        expression = self._expression(value, 0)
        for name in names:
            self._name(name)
        return [Step(names[0], expression, line), *(Step(name, Ref(names[0]), line) for name in names[1:])]

    def _name(self, name: str) -> None:
        if not is_plain_name(name):
            raise unsafe(f"The code has the name {shown(name)}", f"line {self._line}")
        self._known.add(name)

    def _expression(self, node: ast.expr, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise unsafe("The code is nested too deeply", f"line {self._line}")
        reader = _EXPRESSIONS.get(type(node))
        if reader is None:
            raise self._unsafe(node, "an expression that FX never writes")
        return reader(self, node, depth + 1)

    def _constant(self, node: ast.Constant, _: int) -> Expression:
        if not isinstance(node.value, (int, float, complex, str, bool, type(None), type(...))):
            raise self._unsafe(node, "a constant that FX never writes")
        return Const(node.value)

    def _reference(self, node: ast.Name, _: int) -> Expression:
        if node.id in self._known:
            return Ref(node.id)
        if node.id == "Ellipsis":
            return Const(...)
        name = self._aliases.get(node.id, node.id)
        if name in CONSTANTS or name in FUNCTIONS:
            return Named(name)
        raise self._unsafe(node, "a name that it does not define")

    def _attribute(self, node: ast.Attribute, depth: int) -> Expression:
        path = self._path(node)
        if path is not None:
            return Attribute(path)
        name = self._global(node)
        if name is not None:
            if name in CONSTANTS or name in FUNCTIONS:
                return Named(name)
            raise self._unsafe(node, "a name of PyTorch that is not taken")
        if node.attr not in PROPERTIES:
            raise self._unsafe(node, "an attribute that is not taken")
        return Property(self._expression(node.value, depth), node.attr)

    def _path(self, node: ast.expr) -> tuple[str, ...] | None:
        """The path below `self`, when the expression is one."""
        if isinstance(node, ast.Name):
            return () if node.id == "self" else None
        if isinstance(node, ast.Attribute):
            inner = self._path(node.value)
            return None if inner is None else self._extended(inner, node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            name = node.args[1] if len(node.args) == 2 and not node.keywords else None
            inner = self._path(node.args[0]) if node.args else None
            if inner is not None and isinstance(name, ast.Constant) and isinstance(name.value, str):
                return self._extended(inner, name.value)
        return None

    def _extended(self, path: tuple[str, ...], name: str) -> tuple[str, ...]:
        if name.startswith("__") or "." in name or len(name) > 255:
            raise unsafe(f"The code uses {shown(name)} of the module", f"line {self._line}")
        return (*path, name)

    def _global(self, node: ast.expr) -> str | None:
        """The full name, when the expression is a dotted name below an import."""
        if isinstance(node, ast.Name):
            return None if node.id in self._known or node.id == "self" else self._aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            inner = self._global(node.value)
            return None if inner is None else f"{inner}.{node.attr}"
        return None

    def _call(self, node: ast.Call, depth: int) -> Expression:
        path = self._path(node)
        if path is not None:
            return Attribute(path)
        arguments = [self._expression(argument, depth) for argument in node.args]
        keywords = []
        for keyword in node.keywords:
            if keyword.arg is None or not is_plain_name(keyword.arg):
                raise self._unsafe(node, "a call with arguments that are not written out")
            keywords.append((keyword.arg, self._expression(keyword.value, depth)))
        layer = self._path(node.func)
        if layer is not None:
            return Invoke(None, Attribute(layer), tuple(arguments), tuple(keywords))
        if isinstance(node.func, ast.Name) and node.func.id == "slice" and not keywords:
            return Group("slice", tuple(arguments))
        name = self._function_name(node.func)
        if name is not None:
            return self._function(name, arguments, keywords)
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            return Invoke(node.func.attr, self._expression(node.func.value, depth), tuple(arguments), tuple(keywords))
        raise self._unsafe(node.func, "a call that is not taken")

    def _function_name(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name) and node.id not in self._known:
            return self._aliases.get(node.id, f"builtins.{node.id}")
        return self._global(node)

    def _function(self, name: str, arguments: list[Expression], keywords: Any = ()) -> Expression:
        name = name.replace("_operator.", "operator.", 1) if name.startswith("_operator.") else name
        if name not in FUNCTIONS and name.startswith(OPERATOR_MODULES):
            line = self._lines[self._line - 1].strip() if 0 < self._line <= len(self._lines) else ""
            raise refusal([Use(name, None, f"forward:{self._line}: {line}")])
        if name not in FUNCTIONS:
            raise unsafe(f"The code calls {shown(name)}, which is not taken", f"line {self._line}")
        if name == "builtins.getattr":
            return self._getattr(arguments)
        return Invoke(name, None, tuple(arguments), tuple(keywords))

    def _getattr(self, arguments: list[Expression]) -> Expression:
        name = arguments[1] if len(arguments) == 2 else None
        if not isinstance(name, Const) or name.value not in PROPERTIES:
            raise unsafe("The code looks up an attribute that is not taken", f"line {self._line}")
        return Property(arguments[0], str(name.value))

    def _group(self, node: ast.Tuple | ast.List, depth: int) -> Expression:
        kind = "tuple" if isinstance(node, ast.Tuple) else "list"
        return Group(kind, tuple(self._expression(part, depth) for part in node.elts))

    def _dict(self, node: ast.Dict, depth: int) -> Expression:
        parts: list[Expression] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant):
                raise self._unsafe(node, "a dict whose keys are not written out")
            parts += [Const(key.value), self._expression(value, depth)]
        return Group("dict", tuple(parts))

    def _slice(self, node: ast.Slice, depth: int) -> Expression:
        bounds = (node.lower, node.upper, node.step)
        return Group("slice", tuple(Const(None) if part is None else self._expression(part, depth) for part in bounds))

    def _subscript(self, node: ast.Subscript, depth: int) -> Expression:
        return self._function("operator.getitem", [self._expression(part, depth) for part in (node.value, node.slice)])

    def _binary(self, node: ast.BinOp, depth: int) -> Expression:
        operands = [self._expression(part, depth) for part in (node.left, node.right)]
        return self._function(f"operator.{_BINARY[type(node.op)]}", operands)

    def _unary(self, node: ast.UnaryOp, depth: int) -> Expression:
        operand = self._expression(node.operand, depth)
        if isinstance(node.op, ast.USub) and isinstance(operand, Const) and isinstance(operand.value, (int, float)):
            return Const(-operand.value)
        return self._function(f"operator.{_UNARY[type(node.op)]}", [operand])

    def _compare(self, node: ast.Compare, depth: int) -> Expression:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
            raise self._unsafe(node, "a comparison that FX never writes")
        operands = [self._expression(part, depth) for part in (node.left, node.comparators[0])]
        return self._function(f"operator.{_COMPARE[type(node.ops[0])]}", operands)

    def _unsafe(self, node: ast.AST, what: str) -> Exception:
        return unsafe(f"The code has {what}: {shown(ast.unparse(node))}", f"line {self._line}")


_EXPRESSIONS: dict[type[ast.expr], Callable[..., Expression]] = {
    ast.Constant: _Reader._constant,
    ast.Name: _Reader._reference,
    ast.Attribute: _Reader._attribute,
    ast.Call: _Reader._call,
    ast.Tuple: _Reader._group,
    ast.List: _Reader._group,
    ast.Dict: _Reader._dict,
    ast.Slice: _Reader._slice,
    ast.Subscript: _Reader._subscript,
    ast.BinOp: _Reader._binary,
    ast.UnaryOp: _Reader._unary,
    ast.Compare: _Reader._compare,
}
