"""Groups operators by the patterns of the request, each group a sub-function of the pattern's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax
from tvm.ir import Constant
from tvm.relax.utils import copy_with_new_vars

from service.catalogue import option
from service.compiler.dataflow import PRIMITIVE, is_primitive, relax_functions
from service.compiler.pattern_matching import Match, Matcher, Miss, name_of, shown, tensor_operands
from service.compiler.report import Report
from service.errors import JsonObject
from service.nouns import Stage
from service.patterns import Pattern
from service.patterns.request import SCHEMA, SHORT_SCHEMA, parse

MOST_MISSES = 50


@dataclass(frozen=True)
class FusePattern:
    """Groups the operators that match a pattern into a private sub-function, which fuse_tir makes one kernel.

    A pattern is a chain, `{"name": "dense_add_relu", "chain": ["matmul", "add", "nn.relu"]}`, in which each operator
    reads the one before at any position, or a small graph of named nodes:

        {"name": "scale_shift", "nodes": {"scaled": {"op": "multiply", "args": ["x", "scale"]},
                                          "result": {"op": "add", "args": ["scaled", "_"]},
                                          "scale": {"constant": true, "rank": 1}}}

    where `x` would be a node, too: `"x": {"dtype": "float32"}`. Each node, an entry of a chain as well, may have
    constraints: `shape` (numbers, `*`, or names that stand for one size throughout), `rank`, `dtype`, `constant` (an
    operand that is a weight), `single_use`. Commutative operators match with swapped operands.

    Operators are called as in Relax: `matmul`, `nn.relu`; `nn.` may be left out. `dense` and `linear` stand for matmul,
    `transpose` and `permute` for permute_dims, `sub`, `mul`, `div`, `neg` and `fma` for what they shorten.

    An inner value that something outside reads as well is not grouped, as it would be computed twice; `"single_use":
    false` says to do that. Patterns of higher `priority` come first, and what has been grouped is not matched again.
    Constants become arguments of the call. Groups that are equal share one sub-function.

    The step's `details.patterns` tell each match with its bindings, and each near miss with the node and the constraint
    that failed. `torch.nn.Linear` is imported as a matmul with a permute_dims of its weight: put fold_constant before
    this pass to have that done at compile time.
    """

    name: ClassVar[str] = "fuse_pattern"
    stage: ClassVar[Stage] = Stage.FUSION
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    example_options: ClassVar[JsonObject] = {"pattern": ["dense", "add", "relu"]}
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 2), "float32"), b: R.Tensor((2,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.nn.relu(lv1)
            gv = R.tanh(lv2)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function(private=True)
    def dense_add_relu(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 2), "float32"), b: R.Tensor((2,), "float32")
    ) -> R.Tensor((4, 2), "float32"):
        R.func_attr({"Primitive": True})
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            gv = R.nn.relu(lv1)
            R.output(gv)
        return gv

    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 2), "float32"), b: R.Tensor((2,), "float32")
    ) -> R.Tensor((4, 2), "float32"):
        cls = Module
        with R.dataflow():
            lv2: R.Tensor((4, 2), "float32") = cls.dense_add_relu(x, w, b)
            gv = R.tanh(lv2)
            R.output(gv)
        return gv
"""

    pattern: list[Any] = option([], "The short form: one chain of operators, by name.", structure=SHORT_SCHEMA)
    patterns: list[Any] = option([], "Patterns with names, constraints and priorities.", structure=SCHEMA)

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        patterns = parse({"pattern": self.pattern, "patterns": self.patterns})
        results = {pattern.name: _Result(pattern) for pattern in patterns}
        grouper = _Grouper(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        for gvar, function in relax_functions(mod):
            if not is_primitive(function):
                grouper.group(gvar, function, patterns, results)
        report.details["patterns"] = [result.to_json() for result in results.values()]
        report.notes += [result.note() for result in results.values() if not result.matches]
        return grouper.builder_.get() if grouper.groups else mod


class _Result:
    """What one pattern found in all functions."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.matches: list[JsonObject] = []
        self.misses: list[tuple[str, Miss]] = []

    def to_json(self) -> JsonObject:
        shown_misses = self.misses[:MOST_MISSES]
        return {
            "name": self.pattern.name,
            "priority": self.pattern.priority,
            "matches": self.matches,
            "near_misses": [miss.to_json(function) for function, miss in shown_misses],
            "near_misses_left_out": len(self.misses) - len(shown_misses),
        }

    def note(self) -> str:
        if not self.misses:
            return f"Pattern {self.pattern.name!r} matched nothing, and nothing came near."
        nearest_miss = max((miss for _, miss in self.misses), key=Miss.nearness)
        reason = f"node {nearest_miss.node!r} fails by {nearest_miss.constraint}: {nearest_miss.message}"
        return (
            f"Pattern {self.pattern.name!r} matched nothing. The nearest, at {name_of(nearest_miss.root)!r}: {reason}."
        )


@relax.expr_functor.mutator
class _Grouper(relax.PyExprMutator):  # type: ignore[misc]
    """Finds the groups of one function after the other, and puts calls of sub-functions in their places."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.groups = 0
        self.names = {str(gvar.name_hint) for gvar in mod.get_global_vars()}
        self.calls: dict[Any, tuple[Any, list[Any]]] = {}

    def group(
        self, gvar: Any, function: relax.Function, patterns: tuple[Pattern, ...], results: dict[str, _Result]
    ) -> None:
        """Rewrites one function of the builder's module."""
        matcher = Matcher(function)
        self.calls = {}
        for pattern in patterns:
            result = results[pattern.name]
            misses = self._match_all(str(gvar.name_hint), matcher, pattern, result)
            result.misses += [(str(gvar.name_hint), miss) for miss in misses]
        if self.calls:
            self.builder_.update_func(gvar, relax.analysis.remove_all_unused(self.visit_expr(function)))

    def _match_all(self, function: str, matcher: Matcher, pattern: Pattern, result: _Result) -> list[Miss]:
        misses: list[Miss] = []
        operators = pattern.nodes[pattern.result].operators
        for var in matcher.variables:
            if matcher.operator(var) not in operators or var in matcher.claimed:
                continue
            found = matcher.match(pattern, var)
            if isinstance(found, Match):
                found = self._make(matcher, found, function, result) or found
            if isinstance(found, Miss):
                misses.append(found)
        least = (len(pattern.operators()) + 1) // 2
        for var in matcher.variables:
            if var not in matcher.claimed:
                misses += matcher.below(pattern, var, least)
        return _nearest(misses, least)

    def _make(self, matcher: Matcher, match: Match, function: str, result: _Result) -> Miss | None:
        """Makes the sub-function of a match; why not, when it cannot be made."""
        pattern = match.pattern
        members = matcher.in_order([match.nodes[node.name] for node in pattern.operators()])
        operands = _operands(matcher, members)
        body = _sub_function(matcher, members, operands)
        if body is None:
            message = f"a size that {shown(match.root)} needs cannot be found in the shapes of the operands"
            return Miss(pattern, match.root, match.nodes, pattern.result, "shape", match.root, message)
        gvar = self._add(body, pattern.name)
        self.groups += 1
        self.calls[matcher.call(match.root)] = (gvar, operands)
        for node in pattern.operators():
            if node.name == pattern.result or node.single_use is not False:
                matcher.claimed[match.nodes[node.name]] = pattern.name
        nodes = {name: name_of(expr) for name, expr in match.nodes.items()}
        group = {"function": function, "group": str(gvar.name_hint), "at": name_of(match.root), "nodes": nodes}
        result.matches.append(group)
        return None

    def _add(self, function: relax.Function, name: str) -> Any:
        number, free = 0, name
        while free in self.names:
            number += 1
            free = f"{name}{number}"
        # The builder gives back the variable of an equal function if it has one.
        gvar = self.builder_.add_func(function, free)
        self.names.add(str(gvar.name_hint))
        return gvar

    def visit_call_(self, op: Any) -> Any:
        if op in self.calls:
            gvar, operands = self.calls[op]
            return relax.Call(gvar, [self.visit_expr(operand) for operand in operands])
        return super().visit_expr_post_order(op)


def _operands(matcher: Matcher, members: list[Any]) -> list[Any]:
    """What the members read that is not one of them, each once."""
    operands: list[Any] = []
    for var in members:
        for operand in tensor_operands(matcher.call(var)):
            if not any(operand.same_as(known) for known in [*members, *operands]):
                operands.append(operand)
    return operands


def _sub_function(matcher: Matcher, members: list[Any], operands: list[Any]) -> Any:
    """`members`, in their order, as a Primitive function of `operands`; None where a symbol of a shape is unbound."""
    if not all(isinstance(operand.ty, relax.TensorType) for operand in operands):
        return None
    names = [str(operand.name) if isinstance(operand, relax.Var) else "constant" for operand in operands]
    params = [relax.Var(name, operand.ty) for name, operand in zip(names, operands, strict=True)]
    inside: list[tuple[Any, Any]] = list(zip(operands, params, strict=True))

    def renamed(argument: Any) -> Any:
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([renamed(each) for each in argument.fields])
        if isinstance(argument, relax.Var | Constant):
            return next(new for old, new in inside if old.same_as(argument))
        return argument

    builder = relax.BlockBuilder()
    with builder.function("group", params, private=True):
        with builder.dataflow():
            for var in members[:-1]:
                inside.append((var, builder.emit(_renamed_call(matcher.call(var), renamed))))
            result = builder.emit_output(_renamed_call(matcher.call(members[-1]), renamed))
        builder.emit_func_output(result)
    function = builder.get()["group"].with_attr(PRIMITIVE, True)
    return None if relax.analysis.free_symbolic_vars(function) else copy_with_new_vars(function)


def _renamed_call(call: Any, renamed: Any) -> Any:
    return relax.Call(call.op, [renamed(argument) for argument in call.args], call.attrs, call.ty_args)


def _nearest(misses: list[Miss], least: int) -> list[Miss]:
    """Those of which at least so many operators matched, the nearest first; each place once."""
    kept: list[Miss] = []
    nearness: dict[Any, int] = {}
    for miss in sorted(misses, key=Miss.nearness, reverse=True):
        near = miss.nearness()
        if near >= least and nearness.get(miss.root, 0) <= near:
            kept.append(miss)
            for expr in miss.nodes.values():
                nearness.setdefault(expr, near)
    return kept
