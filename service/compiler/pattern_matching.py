"""Finds the patterns of a request in a Relax function, and says of what nearly matches which constraint failed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Constant

from service.compiler.dataflow import Dataflow
from service.errors import JsonObject
from service.patterns import Node, Pattern
from service.patterns.operators import COMMUTATIVE

# The most operands that are looked at, for one candidate and for a function: n additions have 2 ** n ways through them.
MAX_ATTEMPTS = 2_000
MAX_ATTEMPTS_OF_FUNCTION = 500_000


@dataclass(frozen=True)
class Match:
    """What each node of a pattern stands for; `root` is the variable of its result."""

    pattern: Pattern
    root: Any
    nodes: dict[str, Any]


@dataclass(frozen=True)
class Miss:
    """How far a pattern came at `root`, and the node and constraint at which it failed; `binding` is what was there."""

    pattern: Pattern
    root: Any
    nodes: dict[str, Any]
    node: str
    constraint: str
    binding: Any
    message: str

    def nearness(self) -> int:
        """How many operators are as the pattern has them, also one that fails by another constraint."""
        matched = {name for name in self.nodes if self.pattern.nodes[name].operators}
        if self.constraint != "op" and self.pattern.nodes[self.node].operators:
            matched.add(self.node)
        return len(matched)

    def to_json(self, function: str) -> JsonObject:
        return {
            "function": function,
            "at": name_of(self.root),
            "matched": {name: name_of(expr) for name, expr in self.nodes.items() if self.pattern.nodes[name].operators},
            "node": self.node,
            "constraint": self.constraint,
            "binding": None if self.binding is None else name_of(self.binding),
            "message": self.message,
        }


@dataclass
class _Attempt:
    """One try of a pattern at one binding: what its nodes stand for so far, and the failure that came furthest."""

    pattern: Pattern
    root: Any
    nodes: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    furthest: Miss | None = None
    rank: tuple[int, int] = (-1, 0)
    left: int = 0

    def fail(self, node: Node, constraint: str, binding: Any, message: str, telling: int = 2) -> bool:
        """Records the failure if none came further, and of those no more `telling` one; always False."""
        miss = Miss(self.pattern, self.root, dict(self.nodes), node.name, constraint, binding, message)
        rank = (miss.nearness(), telling)
        if rank > self.rank:
            self.furthest, self.rank = miss, rank
        return False


class Matcher:
    """Matches patterns in one Relax function. What belongs to a group already, `claimed`, is matched no more."""

    def __init__(self, function: relax.Function) -> None:
        self._dataflow = Dataflow(function)
        self._values = dict(relax.analysis.get_var2val(function).items())
        self.claimed: dict[Any, str] = {}
        self.left = MAX_ATTEMPTS_OF_FUNCTION
        self.variables = _variables(function)
        self._positions = {var: index for index, var in enumerate(self.variables)}
        self.readers: dict[Any, list[Any]] = {}
        for var in self.variables:
            for operand in dict.fromkeys(_read_by(self._values.get(var))):
                self.readers.setdefault(operand, []).append(var)

    def in_order(self, variables: list[Any]) -> list[Any]:
        """The variables, each once, in the order of their bindings."""
        return sorted(dict.fromkeys(variables), key=self._positions.__getitem__)

    def call(self, var: Any) -> Any:
        """The call of an operator that `var` is bound to; None if it is bound to something else."""
        value = self._values.get(var) if isinstance(var, relax.Var) else None
        is_operator = isinstance(value, relax.Call) and getattr(value.op, "name", "").startswith("relax.")
        return value if is_operator else None

    def operator(self, var: Any) -> str | None:
        """The operator of `call`, by the name that patterns use."""
        call = self.call(var)
        return None if call is None else str(call.op.name).removeprefix("relax.")

    def match(self, pattern: Pattern, root: Any) -> Match | Miss:
        """The match of `pattern` whose result is the variable `root`, or why there is none."""
        given = min(MAX_ATTEMPTS, self.left)
        attempt = _Attempt(pattern, root, left=given)
        is_match = self._assign([(pattern.nodes[pattern.result], root)], attempt)
        self.left -= given - max(attempt.left, 0)
        if is_match:
            return Match(pattern, root, attempt.nodes)
        if attempt.furthest is None:
            attempt.fail(pattern.nodes[pattern.result], "op", root, "there are too many ways in which it could match")
        miss: Any = attempt.furthest
        return miss  # type: ignore[no-any-return]

    def _assign(self, pending: list[tuple[Node, Any]], attempt: _Attempt) -> bool:
        """Whether all `pending` pairs of node and expression hold, with what follows from them."""
        if not pending:
            return self._is_closed(attempt)
        attempt.left -= 1
        if attempt.left < 0:
            return False
        (node, expr), rest = pending[0], pending[1:]
        if node.name in attempt.nodes:
            known = attempt.nodes[node.name]
            is_known = known.same_as(expr) or attempt.fail(node, "args", expr, f"{shown(expr)} is not {shown(known)}")
            return is_known and self._assign(rest, attempt)
        sizes = dict(attempt.sizes)
        if self._holds(node, expr, attempt):
            attempt.nodes[node.name] = expr
            if any(self._assign(operands + rest, attempt) for operands in self._arrangements(node, expr, attempt)):
                return True
            del attempt.nodes[node.name]
        attempt.sizes = sizes
        return False

    def _arrangements(self, node: Node, expr: Any, attempt: _Attempt) -> Iterator[list[tuple[Node, Any]]]:
        """The ways in which the operands of a node may stand for those of the call."""
        if not node.operators:
            yield []
            return
        call = self.call(expr)
        given = tensor_operands(call)
        wanted = [None if name is None else attempt.pattern.nodes[name] for name in node.operands]
        if attempt.pattern.is_chain and wanted:
            for index, operand in enumerate(given):
                if any(operand.same_as(other) for other in given[:index]):
                    continue
                yield [(wanted[0], operand)]  # type: ignore[list-item]  # a chain names all of its operands
            return
        if len(wanted) > len(given):
            attempt.fail(node, "args", expr, f"{shown(expr)} has {len(given)} operands, not {len(wanted)}")
            return
        orders: list[tuple[Any, ...]] = [tuple(given)]
        if self.operator(expr) in COMMUTATIVE and len(given) == 2:
            orders = list(itertools.permutations(given))
        for order in orders:
            yield [(mine, operand) for mine, operand in zip(wanted, order, strict=False) if mine is not None]

    def _holds(self, node: Node, expr: Any, attempt: _Attempt) -> bool:
        if node.operators:
            operator = self.operator(expr)
            if operator not in node.operators:
                message = f"{shown(expr)} must be {_either(node.operators)}, but it is {operator or self._kind(expr)}"
                return attempt.fail(node, "op", expr, message, telling=0 if operator is None else 1)
            if expr in self.claimed:
                message = f"{shown(expr)} belongs to the group {self.claimed[expr]!r} already"
                return attempt.fail(node, "group", expr, message)
            if node.name != attempt.pattern.result and not self._dataflow.reaches(expr, self.call(expr)):
                return attempt.fail(node, "block", expr, f"{shown(expr)} is computed in another dataflow block")
        if not isinstance(expr.ty, relax.TensorType):
            return attempt.fail(node, "op", expr, f"{shown(expr)} is no tensor")
        if node.constant is not None and self._is_constant(expr) != node.constant:
            wanted = "a constant" if node.constant else "computed from the inputs"
            return attempt.fail(node, "constant", expr, f"{shown(expr)} must be {wanted}, and is not")
        return self._fits(node, expr, attempt)

    def _fits(self, node: Node, expr: Any, attempt: _Attempt) -> bool:
        dtype = str(expr.ty.dtype)
        if node.dtype is not None and dtype != node.dtype:
            return attempt.fail(node, "dtype", expr, f"{shown(expr)} must be {node.dtype}, but it is {dtype}")
        if node.rank is not None and expr.ty.ndim != node.rank:
            constraint = "rank" if node.shape is None else "shape"
            message = f"{shown(expr)} must have {node.rank} dimensions, but it has {expr.ty.ndim}"
            return attempt.fail(node, constraint, expr, message)
        if node.shape is None:
            return True
        if not isinstance(expr.ty.shape, relax.ShapeExpr):
            return attempt.fail(node, "shape", expr, f"the shape of {shown(expr)} is not known")
        for wanted, size in zip(node.shape, expr.ty.shape.values, strict=True):
            if isinstance(wanted, int):
                holds = isinstance(size, tirx.IntImm) and int(size) == wanted
            else:
                holds = wanted == "*" or bool(tvm_ffi.structural_equal(attempt.sizes.setdefault(wanted, size), size))
            if not holds:
                known = attempt.sizes.get(str(wanted), wanted)
                said = f"{wanted}, which is {_dim(known)} here," if isinstance(wanted, str) else str(wanted)
                sizes = ", ".join(_dim(each) for each in expr.ty.shape.values)
                message = f"{shown(expr)} must have a size {said} where it has {_dim(size)}; its shape is ({sizes})"
                return attempt.fail(node, "shape", expr, message)
        return True

    def _is_closed(self, attempt: _Attempt) -> bool:
        """Whether nothing outside of the group reads what must be its own."""
        inside = [attempt.nodes[node.name] for node in attempt.pattern.operators()]
        operands = [operand for var in inside for operand in tensor_operands(self.call(var))]
        for node in attempt.pattern.nodes.values():
            expr = attempt.nodes.get(node.name)
            is_inner = bool(node.operators) and node.name != attempt.pattern.result
            single = is_inner if node.single_use is None else node.single_use
            if not single or not isinstance(expr, relax.Var):
                continue
            own = sum(operand.same_as(expr) for operand in operands)
            others = self._dataflow.uses(expr) - own
            if others > 0:
                message = f"{shown(expr)} is read {others} time{'s' * (others > 1)} outside of the group"
                return attempt.fail(node, "single_use", expr, message)
        return True

    def _is_constant(self, expr: Any) -> bool:
        pending, seen = [expr], set()
        while pending:
            each = pending.pop()
            if isinstance(each, Constant) or each in seen:
                continue
            seen.add(each)
            call = self.call(each)
            operands = [] if call is None else tensor_operands(call)
            if not operands:
                return False
            pending += operands
        return True

    def _kind(self, expr: Any) -> str:
        if isinstance(expr, Constant):
            return "a constant"
        return "an input" if expr not in self._values else "the result of no operator"

    def below(self, pattern: Pattern, var: Any, least: int) -> Iterator[Miss]:
        """Where all of `pattern` below one of its inner nodes matches at `var`, but nothing that reads it goes on.

        Only parts of at least so many operators are tried.
        """
        operator = self.operator(var)
        parents = {name: node for node in pattern.operators() for name in node.operands if name is not None}
        for node in pattern.operators():
            if node.name == pattern.result or operator not in node.operators:
                continue
            parent = parents[node.name]
            readers = self.readers.get(var, [])
            if any(self.operator(reader) in parent.operators for reader in readers):
                continue
            part = pattern.rooted_at(node.name)
            found = self.match(part, var) if len(part.operators()) >= least else None
            if not isinstance(found, Match):
                continue
            names = sorted({operator for operator in map(self.operator, readers) if operator is not None})
            found_there = f"it is read by {', '.join(names)}" if names else "no operator reads it"
            message = f"{shown(var)} must be read by {_either(parent.operators)}, but {found_there}"
            reader = readers[0] if readers else None
            yield Miss(pattern, var, found.nodes, parent.name, "op", reader, message)


def tensor_operands(call: Any) -> list[Any]:
    """The tensors that a call reads, in order, also those in a tuple."""
    operands: list[Any] = []
    for argument in call.args:
        fields = argument.fields if isinstance(argument, relax.Tuple) else [argument]
        operands += [each for each in fields if isinstance(each, relax.Var | Constant)]
    return operands


def name_of(expr: Any) -> str:
    """A variable by its name; a constant by its shape and dtype."""
    return str(expr.name) if isinstance(expr, relax.Var) else shown(expr)


def shown(expr: Any) -> str:
    """An expression as a message names it."""
    if isinstance(expr, relax.Var):
        return f"{expr.name!r}"
    if isinstance(expr, Constant) and isinstance(expr.ty.shape, relax.ShapeExpr):
        sizes = ", ".join(_dim(size) for size in expr.ty.shape.values)
        return f"a constant ({sizes}) {expr.ty.dtype}"
    return "an expression"


def _dim(size: Any) -> str:
    return str(int(size)) if isinstance(size, tirx.IntImm) else str(size)


def _either(operators: tuple[str, ...]) -> str:
    return " or ".join(operators)


def _read_by(value: Any) -> list[Any]:
    found: list[Any] = []
    if value is not None:
        relax.analysis.post_order_visit(value, lambda expr: found.append(expr) if isinstance(expr, relax.Var) else None)
    return found


def _variables(function: relax.Function) -> list[Any]:
    collector = _Collector()
    collector.visit_expr(function)
    return collector.variables


@relax.expr_functor.visitor
class _Collector(relax.PyExprVisitor):  # type: ignore[misc]
    def __init__(self) -> None:
        self.variables: list[Any] = []

    def visit_var_binding_(self, binding: Any) -> None:
        self.variables.append(binding.var)
        self.visit_expr(binding.value)
