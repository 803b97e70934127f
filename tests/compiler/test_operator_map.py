"""The legalizer's amendments; the map's numbers are tried in passes/test_lower_to_tensorir.py."""

from __future__ import annotations

import tvm

from service.compiler.operator_map import OPERATORS, has_legalizer_rule


def test_every_entry_is_an_operator_of_relax() -> None:
    for name in OPERATORS:
        assert tvm.ir.Op.get(name).name == name


def test_amended_operators_have_a_rule_and_call_tir_has_none() -> None:
    assert has_legalizer_rule(tvm.ir.Op.get("relax.ewise_fma"))
    assert has_legalizer_rule(tvm.ir.Op.get("relax.erf"))
    assert not has_legalizer_rule(tvm.ir.Op.get("relax.call_tir"))
