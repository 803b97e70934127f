"""What is seen is what is built, and the same module gives the same bytes."""

from __future__ import annotations

import ctypes
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from service.compiler.build import build_executable, link_with_ld, write_library
from service.compiler.passes.fuse_dense_add import FuseDenseAdd
from service.compiler.passes.legalize_ops import LegalizeOps
from service.compiler.report import Report
from service.compiler.target import tvm_target
from service.errors import BuildFailed, OutputTooLarge
from service.nouns import Limits, Target
from service.runtime.session import Session
from tests.compiler.conftest import MakeRun, module_of


def native() -> object:
    return tvm_target(Target())


def test_the_build_fuses_nothing_by_itself(tmp_path: Path) -> None:
    executable = build_executable(LegalizeOps().apply(module_of(LegalizeOps.before), Report()), native())
    text = executable.as_text()
    assert "add" in text
    assert "relu" in text
    assert "fused" not in text


def test_groups_that_no_pass_has_lowered_become_kernels() -> None:
    fused = FuseDenseAdd().apply(module_of(FuseDenseAdd.before), Report())
    executable = build_executable(fused, native())
    assert "fused_dense_add0" in executable.as_text()
    x, w, b = (np.ones(shape, "float32") for shape in ((4, 8), (2, 8), (2,)))
    np.testing.assert_array_equal(Session(executable).run([x, w, b])[0], np.full((4, 2), 9, "float32"))


def test_the_same_module_gives_the_same_bytes_in_the_work_dir_only(make_run: MakeRun, tmp_path: Path) -> None:
    libraries = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        job = make_run("unused", work_dir=str(folder)).job
        size = write_library(build_executable(module_of(LegalizeOps.before), native()), job, link_with_ld)
        library = Path(job.library_path).read_bytes()
        assert len(library) == size
        libraries.append(library)
    assert libraries[0] == libraries[1]
    assert ctypes.CDLL(job.library_path)


def test_a_library_over_its_limit_is_refused(make_run: MakeRun) -> None:
    job = make_run("unused", limits=Limits(library_bytes=100)).job
    with pytest.raises(OutputTooLarge) as caught:
        write_library(build_executable(module_of(LegalizeOps.before), native()), job, link_with_ld)
    assert caught.value.extensions["limit_bytes"] == 100


def test_a_linker_that_fails_or_is_missing_is_a_build_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildFailed, match="linker"):
        link_with_ld(str(tmp_path / "out.so"), [str(tmp_path / "missing.o")])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildFailed, match="not installed"):
        link_with_ld(str(tmp_path / "out.so"), [])


def test_the_installed_tvm_is_the_pinned_one() -> None:
    assert importlib.metadata.version("apache-tvm") == "0.27.0.post1"
    assert importlib.metadata.version("apache-tvm-ffi") == "0.1.14.post1"


def test_the_pinned_tvm_ffi_prints_tensor_constants_without_crashing() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from tvm import relax\n"
        "x = relax.Var('x', relax.TensorType((4,), 'float32'))\n"
        "builder = relax.BlockBuilder()\n"
        "with builder.function('main', [x]):\n"
        "    builder.emit_func_output(builder.emit(relax.op.add(x, relax.const(np.arange(4, dtype='float32')))))\n"
        "print(builder.get().script(show_meta=True))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "metadata" in done.stdout


def test_the_module_given_is_not_changed() -> None:
    before, twin = module_of(LegalizeOps.before), module_of(LegalizeOps.before)
    build_executable(before, native())
    tvm.ir.assert_structural_equal(before, twin)
