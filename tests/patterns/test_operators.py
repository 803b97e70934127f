"""The operators that a pattern may name are those of Relax."""

from __future__ import annotations

import pytest
import tvm

from service.patterns.operators import ALIASES, BROADCASTING, COMMUTATIVE, OPERANDS, POINTWISE, TUPLES, full_name

# What has no tensor for a result, changes something, or is not of a model: no operator of a pattern.
OTHERS = (
    "builtin.", "call_", "ccl.", "dist.", "grad.", "inspect.", "memory.", "vm.", "invoke_", "vision.all_", "vision.multi",
    "vision.non_", "assert_op", "print", "make_closure", "hint_on_device", "to_vdevice", "null_value", "wrap_param",
    "shape_of", "shape_to_tensor", "tensor_to_shape", "size", "nonzero", "index_put", "index_tensor",
    "multinomial_from_uniform", "nn.attention_var_len",
)  # fmt: skip


def test_every_operator_of_relax_is_known_or_left_out_on_purpose() -> None:
    import tvm.relax

    known = {name.removeprefix("relax.") for name in tvm.ir.Op.list_op_names() if name.startswith("relax.")}
    listed = set(OPERANDS) | TUPLES
    assert listed <= known
    assert [name for name in sorted(known - listed) if not name.startswith(OTHERS)] == []


@pytest.mark.parametrize("name", sorted(set(OPERANDS) - {"broadcast_to", "reshape", "full"}))
def test_no_operator_reads_more_tensors_than_it_has_arguments(name: str) -> None:
    count = OPERANDS[name]
    assert count is None or count <= max(tvm.ir.Op.get(f"relax.{name}").num_inputs, 0)


def test_one_operator_has_several_names() -> None:
    assert {full_name(word) for word in ("relu", "nn.relu", "relax.nn.relu")} == {"nn.relu"}
    assert full_name("dense") == "matmul"
    assert full_name("nothing") is None
    assert set(ALIASES.values()) <= set(OPERANDS)
    assert set(OPERANDS) >= COMMUTATIVE | BROADCASTING | POINTWISE
