"""A Session runs a linked library without torch, whatever the alignment and strides of its inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from service.errors import ExecutionFailed
from service.runtime.session import ALIGNMENT, Session, aligned_copy


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """(x + 1, (x,)) for x (n, 3) float32."""
    folder = tmp_path_factory.mktemp("library")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 3), "float32"))
    with builder.function("main", [x]):
        total = builder.emit(relax.op.add(x, relax.const(1.0, "float32")))
        builder.emit_func_output(relax.Tuple([total, relax.Tuple([x])]))

    def link(output: str, objects: list[str], **_: object) -> None:
        subprocess.run(["ld", "-shared", "-o", output, *objects], check=True)

    executable = relax.build(builder.get(), target="llvm")
    executable.export_library(str(folder / "model.so"), fcompile=link, workspace_dir=str(folder))
    return str(folder / "model.so")


def test_nested_outputs_are_flattened(library: str) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    total, same = Session(library).run([x])
    np.testing.assert_array_equal(total, x + 1)
    np.testing.assert_array_equal(same, x)


def test_an_output_shares_no_memory_with_an_input(library: str) -> None:
    x = np.zeros((2, 3), "float32")
    same = Session(library).run([x])[1]
    same += 5
    assert not x.any()


def test_misaligned_strided_and_read_only_inputs_run(library: str) -> None:
    session = Session(library)
    wanted = np.arange(6, dtype="float32").reshape(2, 3)
    misaligned = np.frombuffer(b"\0" + wanted.tobytes(), np.uint8)[1:].view("float32").reshape(2, 3)
    assert misaligned.ctypes.data % 4
    for value in (misaligned, np.asfortranarray(wanted), wanted[::-1][::-1], np.broadcast_to(wanted[:1], (2, 3))):
        np.testing.assert_array_equal(session.run([value])[0], value + 1)


def test_an_empty_batch_runs(library: str) -> None:
    assert Session(library).run([np.zeros((0, 3), "float32")])[0].shape == (0, 3)


@pytest.mark.parametrize("shape", [(), (1,), (7, 5)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float64"])
def test_aligned_copies_are_equal_and_aligned(shape: tuple[int, ...], dtype: str) -> None:
    value = np.ones(shape, dtype)
    copy = aligned_copy(value)
    assert copy.ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(copy, value)


@pytest.mark.parametrize(
    "inputs",
    [[], [np.zeros((2, 4), "float32")], [np.zeros((2, 3), "float64")], [np.zeros(3, "float32")], [None]],
    ids=["none", "shape", "dtype", "rank", "no array"],
)
def test_what_does_not_fit_is_an_execution_failed(library: str, inputs: list[np.ndarray]) -> None:
    with pytest.raises(ExecutionFailed) as caught:
        Session(library).run(inputs)
    assert "/project/src" not in caught.value.detail


def test_what_is_no_library_is_an_execution_failed(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(b"not ELF")
    for each in (path, tmp_path / "missing.so"):
        with pytest.raises(ExecutionFailed):
            Session(str(each))


def test_it_runs_where_torch_is_blocked(library: str) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from service.runtime.session import Session\n"
        f"out = Session({library!r}).run([np.zeros((2, 3), 'float32')])\n"
        "assert (out[0] == 1).all()\n"
        "assert sys.modules['torch'] is None\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
