"""Executables that share the kernels they have in common: what the check of every step is run with."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import IRModule, relax, tirx

from service.compiler.build import lower, pass_config
from service.compiler.context import extended

# What other passes are told of a function by its attributes, and its name.
_NOT_OF_THE_KERNEL = ("global_symbol", "op_pattern")


class KernelCache:
    """Builds modules of one Compilation; each distinct kernel goes through LLVM once.

    Kernels live for as long as the process does, which is that of one Compilation.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._symbols: dict[int, list[tuple[tirx.PrimFunc, str]]] = {}

    def build(self, mod: IRModule) -> Any:
        """`mod` as a module that a virtual machine can run. Raises what tvm raises."""
        lowered = lower(mod, self._target)
        symbols: dict[str, str] = {}
        new: dict[str, tirx.PrimFunc] = {}
        for gvar, function in lowered.functions.items():
            if isinstance(function, tirx.PrimFunc):
                symbol, is_new = self._symbol(function)
                symbols[str(gvar.name_hint)] = symbol
                if is_new:
                    new[symbol] = function.with_attr("global_symbol", symbol)
        if new:
            with extended(pass_config(IRModule(new))):
                library = tvm.tirx.build(IRModule(new), target=self._target)
            for symbol in new:
                # A virtual machine looks for what its own library lacks among the global functions. Imported into
                # each executable, the kernels would be made machine code anew for each.
                tvm.register_global_func(symbol, library[symbol], override=True)
        calling = calling_by_symbol(lowered, symbols)
        with self._target:
            # Its module, since the executable as such would have the C source of no kernel at all compiled first.
            return relax.build(calling, self._target, relax_pipeline=None).mod

    def _symbol(self, function: tirx.PrimFunc) -> tuple[str, bool]:
        """The symbol of the kernel that computes as `function` does, and whether it must be built."""
        bare = function
        for attribute in _NOT_OF_THE_KERNEL:
            if attribute in (bare.attrs or {}):
                bare = bare.without_attr(attribute)
        key = int(tvm_ffi.structural_hash(bare))
        known = self._symbols.setdefault(key, [])
        for other, symbol in known:
            if tvm_ffi.structural_equal(bare, other):
                return symbol, False
        symbol = f"kernel_{key & 0xFFFFFFFFFFFFFFFF:016x}_{len(known)}"
        known.append((bare, symbol))
        return symbol, True


def calling_by_symbol(mod: IRModule, symbols: dict[str, str]) -> IRModule:
    """The Relax functions of `mod` alone, which call its kernels by their symbols in place of their names."""
    return _CallsBySymbol(mod, symbols).rewritten()


@relax.expr_functor.mutator
class _CallsBySymbol(relax.PyExprMutator):  # type: ignore[misc]
    """Calls kernels by their symbols, which the virtual machine looks up in the libraries."""

    def __init__(self, mod: IRModule, symbols: dict[str, str]) -> None:
        super().__init__(mod)
        self._mod = mod
        self._called = symbols

    def rewritten(self) -> IRModule:
        functions = {
            gvar: self.visit_expr(function)
            for gvar, function in self._mod.functions.items()
            if isinstance(function, relax.Function)
        }
        return IRModule(functions, attrs=self._mod.attrs)

    def visit_global_var_(self, op: Any) -> Any:
        symbol = self._called.get(str(op.name_hint))
        return op if symbol is None else relax.ExternFunc(symbol)
