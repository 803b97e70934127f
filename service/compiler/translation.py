"""From a graph of ATen operators to a Relax function: one walk, whose converters are the files of `corrections/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
import torch.fx
from torch.export.graph_signature import InputKind, OutputKind
from tvm import IRModule, relax, te, tirx
from tvm.ir import Constant

from service.compiler.checks import Check, SizeCheck, Whole, assertion, first_failed, first_wrong_size, within_range
from service.compiler.constants import relax_constant
from service.compiler.settled import hold_against, is_foldable
from service.compiler.site import Site, operator_name
from service.compiler.size_guards import Condition, multiples
from service.compiler.symbolic_sizes import symbolic
from service.errors import ImportFailed

Converter = Callable[["Translation", "Arguments"], Any]


class Arguments:
    """The arguments of one call by their names in the operator's schema, defaults filled in; `node` is the call."""

    def __init__(self, node: torch.fx.Node) -> None:
        self.node = node
        target: Any = node.target
        schema = getattr(target, "_schema", None)
        if schema is None:
            self.values: dict[str, Any] = dict(enumerate(node.args))  # type: ignore[arg-type]
            return
        self.values = {arg.name: arg.default_value for arg in schema.arguments if arg.has_default_value()}
        self.values |= {arg.name: value for arg, value in zip(schema.arguments, node.args, strict=False)}
        self.values |= node.kwargs

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def result(self) -> Any:
        """What PyTorch says of the result: a fake tensor, or a sequence of them."""
        return self.node.meta["val"]


class Translation:
    """One graph on its way into Relax.

    Shapes and dtypes are PyTorch's own (`node.meta["val"]`), and each converted value is held against them: a
    converter that gets one wrong makes the import fail, and never a wrong answer.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        converters: dict[str, Converter],
        conditions: Sequence[Condition] = (),
    ) -> None:
        """`conditions` on the sizes of the inputs are checked by the library before it computes anything."""
        self.program = program
        self.conditions = conditions
        self.converters = converters
        self.builder = relax.BlockBuilder()
        self.symbols: dict[str, Any] = {}
        self.values: dict[torch.fx.Node, Any] = {}
        self.constants: dict[torch.fx.Node, torch.Tensor] = {}
        self.parameters: dict[torch.fx.Node, torch.Tensor] = {}
        # Parameters and what is computed of them alone; and the first node of each such computation.
        self.fixed: set[torch.fx.Node] = set()
        self.twins: dict[str, torch.fx.Node] = {}
        self.derived: dict[str, Any] = {}
        self.wholes: list[Whole] = []
        # Symbols that are known to be multiples, as such: s as 4 * q.
        self.multiples: dict[Any, Any] = {}
        # Sizes that the conditions say are another one, as 2 * (s // 4) is s // 2, and that one.
        self.equal: dict[Any, Any] = {}
        # The first dimension of the inputs that each expression is, as the user knows it.
        self.labels: dict[str, str] = {}
        # The node that is being converted, and of each variable of the function the node that it comes from.
        self.current: torch.fx.Node | None = None
        self.origins: dict[str, torch.fx.Node] = {}
        # The symbols that the sizes of the inputs define; None until all inputs are read.
        self.bound: set[str] | None = None
        self.checks: list[Check] = []
        # What is checked already, so that an index that is used twice is looked at once.
        self.checked: set[Any] = set()

    # Reading the graph

    def dim(self, size: Any) -> Any:
        """A size of PyTorch's as an int or as an expression over the symbols of the function."""
        if isinstance(size, torch.fx.Node):
            size = size.meta["val"]
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        expression = expression.subs(self.multiples)
        expression = self.equal.get(expression, expression)
        if str(expression) in self.derived:
            return self.derived[str(expression)]
        return symbolic(expression, self._known(expression))

    def _known(self, expression: Any) -> dict[str, Any]:
        """The symbols of `expression`. Raises ImportFailed where one is not a size of the inputs."""
        for symbol in expression.free_symbols:
            if str(symbol) in self.symbols:
                continue
            if self.bound is not None and str(symbol) not in self.bound:
                raise ImportFailed("a size or a number depends on the data, which cannot be compiled.", step=0)
            self.symbols.setdefault(str(symbol), tirx.Var(str(symbol), "int64"))
        return self.symbols

    def dims(self, value: Any) -> list[Any]:
        """The shape of a node, of a fake tensor, or of a list of sizes."""
        if isinstance(value, torch.fx.Node):
            value = value.meta["val"]
        return [self.dim(size) for size in (value.shape if hasattr(value, "shape") else value)]

    def shape(self, value: Any) -> Any:
        """As `dims`, as an argument for `te`."""
        return relax.ShapeExpr(self.dims(value))

    def constant_of(self, argument: Any) -> torch.Tensor | None:
        """The tensor that a node always has, where it is known now."""
        return self.constants.get(argument) if isinstance(argument, torch.fx.Node) else None

    def stored(self, argument: Any) -> torch.Tensor | None:
        """The tensor of a parameter, a buffer or a folded node, also where it is large; None of what is computed."""
        if not isinstance(argument, torch.fx.Node):
            return None
        return self.parameters.get(argument, self.constants.get(argument))

    # Making Relax

    def constant(self, tensor: torch.Tensor) -> Any:
        """A tensor of PyTorch's in Relax."""
        return relax_constant(tensor)

    def item(self, pair: Any, index: int) -> Any:
        """One part of a tuple."""
        return self.emit(relax.TupleGetItem(pair, index))

    def tensor(self, argument: Any, dtype: torch.dtype | None = None) -> Any:
        """A node or a number as a tensor of Relax, of `dtype` where it is given."""
        if not isinstance(argument, torch.fx.Node):
            number = getattr(argument, "node", None)
            if number is not None:
                raise ImportFailed("A size of the model is used as a number before it is known.", step=0)
            return relax_constant(torch.tensor(argument, dtype=dtype))
        value = argument.meta["val"]
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return self._number(value, dtype or torch.int64)
        if isinstance(value, int | float | bool):
            return relax_constant(torch.tensor(value, dtype=dtype))
        expr = self.values[argument]
        return expr if dtype is None or value.dtype == dtype else self.cast(expr, value.dtype, dtype)

    def _number(self, value: Any, dtype: torch.dtype) -> Any:
        """A number that depends on sizes, as a () tensor."""
        expression = value.node.expr.subs(self.multiples)
        if expression.is_number:
            number = float(expression) if isinstance(value, torch.SymFloat) else int(expression)
            return relax_constant(torch.tensor(number, dtype=dtype))
        names = sorted(str(symbol) for symbol in expression.free_symbols)
        sizes = [self._known(expression)[name] for name in names]

        def compute(given: Any) -> Any:
            known = dict(zip(names, given, strict=True))
            return te.compute((), lambda: tirx.Cast(dtype_name(dtype), symbolic(expression, known)), name="number")

        return self.te(compute, relax.ShapeExpr(sizes), name="number")

    def cast(self, expr: Any, source: torch.dtype, target: torch.dtype) -> Any:
        """`expr` as PyTorch converts it: to bool, what is not zero is True, NaN included."""
        if source == target:
            return expr
        if target is torch.bool:
            if source in (torch.float16, torch.bfloat16):
                expr, source = self.emit(relax.op.astype(expr, "float32")), torch.float32
            zero = relax_constant(torch.zeros((), dtype=source))
            return self.emit(relax.op.not_equal(expr, zero))
        if source is torch.bool and target.is_floating_point and target is not torch.float32:
            expr = self.emit(relax.op.astype(expr, "float32"))
        if source.is_floating_point and not target.is_floating_point and target is not torch.int64:
            # By way of int64, so that small integers wrap around as PyTorch's do.
            expr = self.emit(relax.op.astype(expr, "int64"))
        return self.emit(relax.op.astype(expr, dtype_name(target)))

    def emit(self, expr: Any) -> Any:
        """`expr` bound to a variable, which has the name of the node that is being converted."""
        if isinstance(expr, relax.Var | Constant):
            return expr
        if self.current is None:
            return self.builder.emit(expr)
        var = self.builder.emit(expr, name_hint=self.current.name)
        self.origins[str(var.name)] = self.current
        return var

    def te(self, compute: Callable[..., Any], *arguments: Any, name: str) -> Any:
        """A call of a new TensorIR function; `compute` gets TE tensors for the tensors among `arguments`."""
        return self.emit(self.builder.call_te(compute, *arguments, primfunc_name_hint=name))

    def check(self, arguments: Arguments, condition: Any, message: str) -> None:
        """Makes a run fail with `message`, naming the operator, where `condition`, a bool () tensor, is False."""
        self.checks.append(Check(condition, Site.of(arguments.node), message))

    def branch(self, reference: torch.fx.Node, operands: Sequence[Any], taken: Any) -> list[Any]:
        """The results of a subgraph; its checks count only where the () bool tensor `taken` is True."""
        module = getattr(self.program.graph_module, str(reference.target))
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        for node, operand in zip(inputs, operands, strict=True):
            self.values[node] = self.values.get(operand) if isinstance(operand, torch.fx.Node) else operand
            node.meta.setdefault("val", operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand)
        before, checked = len(self.checks), set(self.checked)
        for node in module.graph.nodes:
            if node.op == "call_function":
                self.values[node] = self._convert(node)
        self.checked = checked
        skipped = self.emit(relax.op.logical_not(taken))
        for index, check in enumerate(self.checks[before:], before):
            condition = self.emit(relax.op.logical_or(check.condition, skipped))
            self.checks[index] = replace(check, condition=condition)
        return [self.tensor(node) for node in module.graph.output_node().args[0]]

    # Walking

    def run(self) -> IRModule:
        """The module. Raises ImportFailed."""
        parameters = self._parameters()
        attributes = self._bounds()
        with self.builder.function("main", parameters, attrs=attributes, pure=True):
            size_checks = self._check_sizes()
            with self.builder.dataflow():
                for node in self.program.graph.nodes:
                    if node.op == "call_function":
                        self.values[node] = self._convert(node)
                outputs = [self.values[node] for node in self._output_nodes()]
                result = self.builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
                verdict = self._verdict()
            if verdict:
                self.builder.emit(assertion(self.checks, *verdict))
            self.builder.emit_func_output(result)
        module = self.builder.get()
        if self.checks or size_checks:
            main = module["main"]
            module["main"] = relax.Function(main.params, main.body, main.ret_ty, False, main.attrs)
        return module

    def _check_sizes(self) -> list[SizeCheck]:
        """The checks of sizes, which stand before all else: with wrong sizes a kernel could leave its buffers."""
        checks = [check for whole in self.wholes for check in whole.checks(self.program.range_constraints)]
        for condition in self.conditions:
            expression = condition.expression.subs(self.multiples)
            if expression not in (sympy.true, True):
                checks.append(SizeCheck(partial(symbolic, expression), condition.text))
        checks += self._ranges() if checks else []
        if checks:
            known = {name: size for name, size in self.symbols.items() if isinstance(size, tirx.Var)}
            known |= {str(whole.var.name): whole.var for whole in self.wholes}
            resolved = [SizeCheck(partial(self._resolved, check.condition), check.text) for check in checks]
            self.builder.emit(assertion(resolved, *first_wrong_size(self.builder, resolved, known)))
        return checks

    def _ranges(self) -> list[SizeCheck]:
        """The ranges of the symbols that are dimensions by themselves."""
        found = []
        for symbol, bounds in self.program.range_constraints.items():
            name = str(symbol)
            if isinstance(self.symbols.get(name), tirx.Var):
                found += within_range(name, int(bounds.lower), bounds.upper, self.labels.get(name, name))
        return found

    def _resolved(self, condition: Callable[[Mapping[str, Any]], Any], known: Mapping[str, Any]) -> Any:
        """`condition` with the symbols that are parts of a whole dimension."""
        parts = {whole.symbol: whole.part(known[str(whole.var.name)]) for whole in self.wholes}
        return condition({**known, **parts})

    def _verdict(self) -> list[Any]:
        """Whether all checks hold and the number of the first that does not; nothing where there is no check."""
        if not self.checks:
            return []
        parts = first_failed(self.builder, [check.condition for check in self.checks])
        return [self.builder.emit_output(part) for part in parts]

    def _parameters(self) -> list[Any]:
        user_inputs = []
        nodes = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        self._bind_derived(nodes)
        for spec in self.program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                value = node.meta["val"]
                tensor_type = relax.TensorType(self.dims(value), dtype_name(value.dtype))
                self.values[node] = relax.Var(node.name, tensor_type)
                user_inputs.append(self.values[node])
            else:
                tensor = self._stored(spec)
                self.values[node] = relax_constant(tensor)
                kept = self.parameters if spec.kind is InputKind.PARAMETER else self.constants
                kept[node] = tensor
                self.fixed.add(node)
        self.bound = set(self.symbols)
        return user_inputs

    def _bind_derived(self, nodes: Mapping[str, torch.fx.Node]) -> None:
        """Symbols that no dimension is by itself, as h where all are 2 * h, are computed from one that has them.

        Relax defines a symbol where it stands alone in a shape; so the whole dimension gets a symbol of its own.
        """
        specs = [spec for spec in self.program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        for symbol, factor in multiples(self.conditions).items():
            part = sympy.Symbol(f"{symbol}_part", integer=True, positive=True)
            self.multiples[symbol] = factor * part
        for condition in self.conditions:
            equation = condition.expression.subs(self.multiples)
            if isinstance(equation, sympy.Eq) and equation.lhs.free_symbols and equation.rhs.free_symbols:
                self.equal[equation.rhs] = equation.lhs
        expressions = []
        for spec in specs:
            for axis, size in enumerate(nodes[spec.arg.name].meta["val"].shape):
                if isinstance(size, torch.SymInt):
                    expressions.append(size.node.expr.subs(self.multiples))
                    self.labels.setdefault(str(expressions[-1]), f"{spec.arg.name}.size({axis})")
        bound = {str(expression) for expression in expressions if isinstance(expression, sympy.Symbol)}
        origins = {str(parts.free_symbols.pop()): str(symbol) for symbol, parts in self.multiples.items()}
        for expression in expressions:
            free = sorted(expression.free_symbols, key=str)
            if len(free) != 1 or str(free[0]) in bound or not sympy.Poly(expression, free[0]).is_linear:
                continue
            name = str(free[0])
            factor, offset = (int(each) for each in sympy.Poly(expression, free[0]).all_coeffs())
            var = tirx.Var(origins.get(name, f"{name}_whole"), "int64")
            whole = Whole(name, var, factor, offset, self.labels[str(expression)], origins.get(name))
            self.wholes.append(whole)
            self.derived[str(expression)] = whole.var
            self.symbols[whole.symbol] = whole.part(whole.var)
            bound.add(name)

    def _stored(self, spec: Any) -> torch.Tensor:
        store = self.program.state_dict if spec.target in self.program.state_dict else self.program.constants
        tensor: torch.Tensor = store[spec.target].detach()
        return tensor

    def _bounds(self) -> dict[str, Any]:
        lower, upper = {}, {}
        ranges = self.program.range_constraints
        bounds = {str(whole.var.name): whole.bounds(ranges) for whole in self.wholes}
        for symbol, each in ranges.items():
            if isinstance(self.symbols.get(str(symbol)), tirx.Var):
                bounds[str(symbol)] = int(each.lower), each.upper
        for name, (low, high) in bounds.items():
            lower[name] = low
            if getattr(high, "is_Integer", False):
                upper[name] = int(high)
        attributes: dict[str, Any] = {"tir_var_lower_bound": lower} if lower else {}
        return attributes | ({"tir_var_upper_bound": upper} if upper else {})

    def _output_nodes(self) -> Sequence[Any]:
        specs = self.program.graph_signature.output_specs
        results = self.program.graph.output_node().args[0]
        wanted = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return [node for node, spec in zip(results, specs, strict=True) if spec.kind in wanted]

    def _convert(self, node: torch.fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat | int | float | bool):
            return None
        folded = self._fold(node)
        if folded is not None:
            return folded
        twin = self._twin(node)
        if twin is not None:
            return self.values[twin]
        site = Site.of(node)
        outer, self.current = self.current, node
        try:
            converted = self.converters[site.operator](self, Arguments(node))
        except ImportFailed as problem:
            raise ImportFailed(
                f"{site}: {problem.detail}", **{**problem.extensions, "operator": site.operator}
            ) from None
        finally:
            self.current = outer
        hold_against(value, converted, self, site)
        return converted

    def _twin(self, node: torch.fx.Node) -> torch.fx.Node | None:
        """An earlier node that computes the same of parameters alone, as the transposed weight in every step of a loop.

        What depends on inputs stays as the model has it.
        """
        if not node.all_input_nodes or any(each not in self.fixed for each in node.all_input_nodes):
            return None
        self.fixed.add(node)
        first = self.twins.setdefault(repr((operator_name(node.target), node.args, node.kwargs)), node)
        return None if first is node else first

    def _fold(self, node: torch.fx.Node) -> Any:
        if not is_foldable(node, self.constants):
            return None
        arguments = torch.fx.map_arg((node.args, node.kwargs), lambda each: self.constants[each])
        target: Any = node.target
        with torch.no_grad():
            tensor: torch.Tensor = target(*arguments[0], **arguments[1])
        self.constants[node] = tensor
        return relax_constant(tensor)


def dtype_name(dtype: torch.dtype) -> str:
    """Numpy's and TVM's name of a dtype."""
    return str(dtype).removeprefix("torch.")
