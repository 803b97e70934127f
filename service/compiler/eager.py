"""PyTorch eager as the reference: what it gives, how far rounding explains a difference, and other sizes to try."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
import torch.fx
import torch.utils._pytree as pytree
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from service.compiler.constants import array_of, tensor_of
from service.compiler.corrections.ordering import FIRST_OF_EQUALS
from service.compiler.size_guards import Condition
from service.errors import ImportFailed
from service.runtime.session import Array


class EagerReference:
    """The archive's own module, run by PyTorch without gradients."""

    def __init__(self, program: torch.export.ExportedProgram, conditions: Sequence[Condition] = ()) -> None:
        """`conditions` are what the program asks of the sizes of its inputs."""
        self._program = program
        self._conditions = conditions
        self._module = program.module()
        self._specs = user_input_specs(program)
        self._decomposed: list[torch.export.ExportedProgram] | None = None

    def run(self, inputs: list[Array]) -> list[Array]:
        """Implements `Reference.run`; the tensors are copies, so the model cannot change `inputs`."""
        tensors = iter([tensor_of(value) for value in inputs])
        leaves = [
            next(tensors) if isinstance(spec.arg, TensorArgument) else getattr(spec.arg, "value", None)
            for spec in self._program.graph_signature.input_specs
            if spec.kind is InputKind.USER_INPUT
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self._program.call_spec.in_spec)
        with torch.no_grad():
            result = self._module(*args, **kwargs)
        outputs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        return [array_of(output) for output in outputs]

    def example_inputs(self) -> list[Array] | None:
        """The archive's example inputs in the Signature's order, or None when it has none."""
        if self._program.example_inputs is None:
            return None
        args, kwargs = self._program.example_inputs
        flat = self._program._get_flat_args_with_check(args, kwargs)[0]
        return [array_of(leaf) for leaf in flat if isinstance(leaf, torch.Tensor)]

    def run_wide(self, inputs: list[Array]) -> list[Array] | None:
        """Implements `Reference.run_wide`."""
        return _interpreted(_Widened(self._program.graph_module), self._program, inputs, _wide)

    def second_opinions(self, inputs: list[Array], special: bool) -> list[list[Array]]:
        """Implements `Reference.second_opinions`."""
        programs = []
        if any(str(node.target) in FIRST_OF_EQUALS for node in self._program.graph.nodes):
            programs.append(self._program)
        if special:
            programs += self._decompose()
        opinions = []
        for program in programs:
            for kind, convert in ((_Settled, _unchanged), (_Widened, _wide)):
                opinions.append(_interpreted(kind(program.graph_module), program, inputs, convert))
        return [opinion for opinion in opinions if opinion is not None]

    def _decompose(self) -> list[torch.export.ExportedProgram]:
        """The program in PyTorch's own decompositions, which is made once; empty where it has none."""
        if self._decomposed is None:
            try:
                self._decomposed = [self._program.run_decompositions(torch.export.default_decompositions())]
            except Exception:  # noqa: BLE001 - an opinion that is missing; the first one stands
                self._decomposed = []
        return self._decomposed

    def depth(self) -> int:
        """Implements `Reference.depth`."""
        lengths: dict[torch.fx.Node, int] = {}
        for node in self._program.graph.nodes:
            before = max((lengths[each] for each in node.all_input_nodes), default=0)
            lengths[node] = before + (1 if _computes(node) else 0)
        return max(lengths.values(), default=0)

    def makes_integers(self) -> bool:
        """Implements `Reference.makes_integers`."""
        return any(
            _dtype(node) not in (None, torch.bool)
            and not _dtype(node).is_floating_point
            and any(getattr(_dtype(each), "is_floating_point", False) for each in node.all_input_nodes)
            for node in self._program.graph.nodes
            if str(node.target).startswith(_CONVERSIONS)
        )

    def resized(self, inputs: list[Array], choice: int = 0) -> list[tuple[int, ...]] | None:
        """Implements `Reference.resized`."""
        shapes = [_value(self._program, spec).shape for spec in self._specs]
        given: dict[str, int] = {}
        for shape, value in zip(shapes, inputs, strict=True):
            for dim, size in zip(shape, value.shape, strict=True):
                symbol = _part_of(dim, size)
                if symbol is not None:
                    given.setdefault(*symbol)
        if not given or any(_symbols(dim) - set(given) for shape in shapes for dim in shape):
            return None
        candidates = [self._other_sizes(symbol, size, choice) for symbol, size in given.items()]
        for sizes in itertools.islice(itertools.product(*candidates), MAX_TRIED):
            chosen = dict(zip(given, sizes, strict=True))
            if all(condition.holds(chosen) for condition in self._conditions):
                return [tuple(_evaluate(dim, chosen) for dim in shape) for shape in shapes]
        return None

    def _other_sizes(self, symbol: str, size: int, choice: int) -> list[int]:
        """Sizes within the bounds: next to this one, and as the second choice the smallest that the bounds allow."""
        bounds = next((each for known, each in self._program.range_constraints.items() if str(known) == symbol), None)
        least = 1 if bounds is None else max(int(bounds.lower), 1)
        near = [size + 1 + choice, size + 2 + choice, size + 3, size + 4, 2 * size, 3 * size, max(size - 1, 1), size]
        tried = [least, *near] if choice == 1 else near
        return [each for each in tried if bounds is None or least <= each <= bounds.upper]


# How many combinations of sizes are tried for one that all conditions allow.
MAX_TRIED = 500


def _part_of(dim: Any, size: int) -> tuple[str, int] | None:
    """The symbol of a dimension such as s or 2 * s, and its value where the dimension is `size`."""
    if not isinstance(dim, torch.SymInt) or len(dim.node.expr.free_symbols) != 1:
        return None
    (symbol,) = dim.node.expr.free_symbols
    polynomial = sympy.Poly(dim.node.expr, symbol) if dim.node.expr.is_polynomial(symbol) else None
    if polynomial is None or not polynomial.is_linear:
        return None
    factor, offset = (int(each) for each in polynomial.all_coeffs())
    return str(symbol), (size - offset) // factor


def _interpreted(
    interpreter: torch.fx.Interpreter, program: torch.export.ExportedProgram, inputs: list[Array], convert: Any
) -> list[Array] | None:
    """The user's outputs of a program whose inputs and weights go through `convert`; None where it cannot be run."""
    tensors = iter([tensor_of(value) for value in inputs])
    store = {**program.constants, **program.state_dict}
    lifted = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            lifted.append(store[spec.target])
        else:
            lifted.append(next(tensors) if isinstance(spec.arg, TensorArgument) else getattr(spec.arg, "value", None))
    try:
        with torch.no_grad():
            results = interpreter.run(*map(convert, lifted))
    except Exception:  # noqa: BLE001 - a second opinion that is missing; the first one stands
        return None
    wanted = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    pairs = zip(results, program.graph_signature.output_specs, strict=True)
    return [array_of(each) for each, spec in pairs if spec.kind in wanted and isinstance(each, torch.Tensor)]


class _Settled(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph with the first of equal elements where PyTorch leaves open which it is."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(FIRST_OF_EQUALS.get(str(target), target), args, kwargs)


class _Widened(_Settled):
    """Also with float64 in place of narrower floats, to tell rounding from error."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "call_function" and "_assert_tensor_metadata" in str(n.target):
            return None
        return pytree.tree_map(_wide, super().run_node(n))


def _unchanged(value: Any) -> Any:
    return value


_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def _wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.dtype in _NARROW else value


_CONVERSIONS = ("aten._to_copy", "aten.to.", "prims.convert_element_type", "aten.type_as")


def _dtype(node: torch.fx.Node) -> Any:
    return getattr(node.meta.get("val"), "dtype", None)


def _computes(node: torch.fx.Node) -> bool:
    dtype = _dtype(node)
    return node.op == "call_function" and dtype is not None and dtype.is_floating_point


def _symbols(dim: Any) -> set[str]:
    return {str(symbol) for symbol in dim.node.expr.free_symbols} if isinstance(dim, torch.SymInt) else set()


def _evaluate(dim: Any, sizes: dict[str, int]) -> int:
    if not isinstance(dim, torch.SymInt):
        return int(dim)
    expression = dim.node.expr
    return int(expression.subs({symbol: sizes[str(symbol)] for symbol in expression.free_symbols}))


def user_input_specs(program: torch.export.ExportedProgram) -> list[Any]:
    """The specs of the tensors that the user passes, in order. Raises ImportFailed on numbers and strings."""
    specs = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, TensorArgument):
            specs.append(spec)
        elif not isinstance(spec.arg, ConstantArgument):
            raise ImportFailed(
                f"Input {spec.arg.name!r} of the model is a {type(spec.arg).__name__}, not a tensor. "
                "Export the model with a fixed value for it.",
                step=0,
                input=spec.arg.name,
            )
    return specs


def _value(program: torch.export.ExportedProgram, spec: Any) -> Any:
    node = next(node for node in program.graph.nodes if node.name == spec.arg.name)
    return node.meta["val"]
