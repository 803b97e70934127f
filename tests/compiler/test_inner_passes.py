"""Which of TVM's passes runs, also after one has failed, and left behind for one that dies."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from service.compiler.context import pass_context
from service.compiler.inner_passes import InnerPasses, function_in_message, position_notes
from service.errors import PassFailed
from service.nouns import PassContext
from service.position import read_position
from tests.compiler.conftest import module_of
from tests.compiler.planted import refuses_relu

RELU = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
        with R.dataflow():
            gv: R.Tensor((4,), dtype="float32") = R.nn.relu(x)
            R.output(gv)
        return gv
"""


def test_the_innermost_is_noted_and_nothing_is_left_in_the_end():
    noted: list[dict[str, str | None]] = []
    inner = InnerPasses(noted.append)
    with pass_context(PassContext(), [inner]):
        tvm.transform.Sequential([relax.transform.CanonicalizeBindings(), relax.transform.LegalizeOps()])(
            module_of(RELU)
        )
    assert {"inner_pass": "LegalizeOps", "function": "main"} in noted
    assert noted[-1] == {"inner_pass": None}
    assert inner.innermost is None
    assert "sequential" not in [each["inner_pass"] for each in noted]


def test_a_failure_names_the_pass_and_the_function():
    inner = InnerPasses()
    broken = tvm.transform.Sequential([relax.transform.CanonicalizeBindings(), refuses_relu])

    def fail() -> None:
        with pass_context(PassContext(), [inner]), inner.named(module_of(RELU)):
            try:
                broken(module_of(RELU))
            except tvm.error.InternalError as error:
                raise PassFailed("It failed.") from error

    with pytest.raises(PassFailed) as caught:
        fail()
    assert caught.value.extensions == {"inner_pass": "RefusesRelu", "function": "main"}
    inner.begin()
    assert inner.innermost is None


def test_a_failure_that_was_caught_does_not_stay():
    inner = InnerPasses()
    with pass_context(PassContext(), [inner]):
        with pytest.raises(tvm.error.InternalError):
            refuses_relu(module_of(RELU))
        outer = tvm.transform.module_pass(lambda mod, _: relax.transform.LegalizeOps()(mod), opt_level=0, name="Outer")
        outer(module_of(RELU))
    assert inner.innermost in (None, "RefusesRelu")


def test_what_a_dead_process_was_at_can_be_read(tmp_path):
    (tmp_path / "position").touch()
    note = position_notes(str(tmp_path))
    assert read_position(tmp_path) == {}
    note({"inner_pass": "relax.FuseOps", "function": "main"})
    assert read_position(tmp_path) == {"inner_pass": "relax.FuseOps", "function": "main"}
    note({"inner_pass": "x"})
    assert read_position(tmp_path) == {"inner_pass": "x"}
    note({"inner_pass": None})
    assert read_position(tmp_path) == {}
    note({"inner_pass": "n" * 10_000})
    assert read_position(tmp_path) == {}


def test_without_the_file_nothing_is_noted(tmp_path):
    position_notes(str(tmp_path))({"inner_pass": "FuseOps"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("message", "function"),
    [("In fused_add: no", "fused_add"), ("In fused_add_relu: no", None), ("main and fused_add", None), ("no", None)],
)
def test_a_function_is_known_where_the_message_names_one_alone(message, function):
    mod = module_of(RELU)
    mod["fused_add"] = mod["main"].with_attr("global_symbol", "fused_add")
    assert function_in_message(mod, PassFailed(message)) == function
