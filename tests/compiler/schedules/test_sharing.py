"""Repeated parts of an expression stand once: service.compiler.schedules.sharing and .expressions, .vector_unit."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from service.compiler.schedules import vector_maths
from service.compiler.schedules.expressions import Unsupported, children, constant, rewrite, size, variables
from service.compiler.schedules.sharing import bound, shared
from service.compiler.schedules.vector_unit import VectorUnit, size_of, vector_unit

X = tirx.Var("x", "float32")


def test_a_repeated_part_gets_a_name():
    part = tirx.exp(X) + tirx.const(1, "float32")
    expression = tirx.Select(part < tirx.const(0, "float32"), tirx.const(0, "float32"), part * part)
    assert size(shared(expression)) < size(expression)
    assert type(shared(expression)).__name__ == "Let"


def test_what_is_only_read_stays_in_its_place():
    assert type(shared(X + X)).__name__ == "Add"


def test_a_branch_that_is_not_taken_is_not_computed_before():
    guarded = tirx.if_then_else(tirx.const(0, "float32") < X, tirx.log(X), tirx.const(0, "float32"))
    assert type(shared(guarded + tirx.const(1, "float32"))).__name__ == "Add"


def statements(expression):
    """The text of a function that stores `expression` without any Let, which parses back to the same function."""
    with IRBuilder() as builder, T.prim_func(is_private=True, s_tir=True):
        T.func_name("f")
        memory = T.arg("memory", T.buffer([tirx.const(4, "int64")], "float32"))
        T.buffer_store(memory, bound(expression(memory), None), [tirx.const(0, "int64")])
    mod = tvm.IRModule({"f": builder.get()})
    tvm.ir.assert_structural_equal(tvm.script.from_source(mod.script()), mod)
    return mod.script()


def test_names_are_bound_by_statements_that_parse_back():
    text = statements(lambda memory: vector_maths.exp(memory[1] + memory[2]))
    assert "T.Let" not in text
    assert text.count("T.let[") >= 5


def test_a_name_of_a_branch_is_computed_where_the_branch_is_taken():
    def guarded(memory):
        yes = vector_maths.tanh(memory[3])
        return tirx.if_then_else(memory[1] > tirx.const(0, "float32"), yes, tirx.const(0, "float32"))

    text = statements(guarded)
    assert "T.Let" not in text
    assert "T.if_then_else(memory[1] > T.float32(0.0), memory[3], T.float32(0.0))" in text


def test_variables_are_replaced_everywhere():
    y = tirx.Var("y", "float32")
    assert variables(rewrite(tirx.exp(X) * X, {X: y})) == {y}


def test_constants_are_told_from_expressions():
    assert constant(tirx.const(3, "int64")) == 3
    assert constant(X) is None


def test_what_is_not_looked_into_is_refused():
    with pytest.raises(Unsupported, match="Ramp"):
        children(tirx.Ramp(tirx.const(0, "int64"), tirx.const(1, "int64"), 4))


@pytest.mark.parametrize(
    ("cpu", "name", "lanes"), [("x86-64-v2", "sse2", 4), ("x86-64-v3", "avx2", 8), ("x86-64-v4", "avx512", 16)]
)
def test_named_levels_have_their_vectors(cpu, name, lanes):
    unit = vector_unit(tvm.target.Target({"kind": "llvm", "mcpu": cpu}))
    assert (unit.name, unit.lanes("float32")) == (name, lanes)


def test_without_a_target_every_cpu_will_do():
    assert vector_unit(None).name == "sse2"
    assert size_of("bfloat16") == 2
    assert VectorUnit("one", 16, 8, 4).lanes("float64") == 2
