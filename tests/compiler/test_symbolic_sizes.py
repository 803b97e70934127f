"""Sizes as expressions: what PyTorch writes with sympy, TensorIR computes."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy import functions
from tvm import tirx
from tvm.sym.analyzer import Analyzer

from service.compiler.symbolic_sizes import symbolic
from service.errors import ImportFailed

N, M = sympy.symbols("n m", integer=True, positive=True)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (2 * N + M - 3, 2 * 7 + 5 - 3),
        (N * M, 35),
        (N**2, 49),
        (functions.FloorDiv(N, 2), 3),
        (functions.Mod(N, M), 2),
        (functions.Max(N, M), 7),
        (functions.Min(N, M), 5),
    ],
    ids=str,
)
def test_an_expression_has_the_value_that_python_gives_it(expression: sympy.Expr, value: int) -> None:
    sizes = {"n": tirx.const(7, "int64"), "m": tirx.const(5, "int64")}
    assert int(Analyzer().simplify(symbolic(expression, sizes))) == value


def test_an_expression_of_another_kind_is_refused() -> None:
    with pytest.raises(ImportFailed, match="cannot be compiled"):
        symbolic(sympy.sin(N), {"n": tirx.const(7, "int64")})
