"""Kernels as object files, made once and known again: service.compiler.kernel_objects."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from tvm import IRModule

from service.compiler.build import link_with_ld, write_library
from service.compiler.compile import Compiler
from service.compiler.context import pass_context
from service.compiler.kernel_objects import KernelObject, NoKernels, make_objects, split, write_archive
from service.compiler.passes.legalize_ops import LegalizeOps
from service.compiler.report import Report
from service.compiler.target import tvm_target
from service.errors import Problem
from service.nouns import PassContext, Target
from service.runtime.session import Session
from tests.compiler.conftest import MakeRun, module_of


class Remembering:
    """Known kernels in memory; `asked` are the keys of the last question."""

    def __init__(self):
        self.kernels, self.asked = {}, []

    def find(self, keys):
        self.asked = keys
        return {key: self.kernels[key] for key in keys if key in self.kernels}

    def keep(self, key, made):
        self.kernels[key] = made


def lowered():
    return LegalizeOps().apply(module_of(LegalizeOps.before), Report())


def made(folder, known, target=None, context=None, mod=None):
    target = target or tvm_target(Target(threads=1))
    with pass_context(context or PassContext()):
        executable, functions = split(mod or lowered(), target)
        return executable, make_objects(functions, target, str(folder), known, lambda _: None)


def test_known_kernels_are_those_that_were_made(tmp_path):
    known = Remembering()
    _, first = made(tmp_path, known)
    assert len(first.objects) == len(known.kernels) > 1
    assert [each.known for each in first.objects] == [False] * len(first.objects)
    assert first.generating.cpu_ms > 0
    _, second = made(tmp_path, known)
    assert [each.known for each in second.objects] == [True] * len(first.objects)
    assert [(each.code, each.tir, each.llvm) for each in first.objects] == [
        (each.code, each.tir, each.llvm) for each in second.objects
    ]
    assert second.generating.cpu_ms == 0


@pytest.mark.parametrize(
    "other",
    [
        {"target": tvm_target(Target(cpu="x86-64-v2", threads=1))},
        {"context": PassContext(opt_level=0)},
        {"context": PassContext(config={"tirx.disable_cse_tir": True})},
    ],
)
def test_another_target_or_context_has_other_kernels(tmp_path, other):
    known = Remembering()
    made(tmp_path, known)
    keys = set(known.asked)
    made(tmp_path, known, **other)
    assert not keys & set(known.asked)


def test_a_library_of_known_kernels_has_the_same_bytes_and_computes_the_same(tmp_path, make_run: MakeRun):
    known, libraries = Remembering(), []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        job = make_run("unused", work_dir=str(folder)).job
        executable, kernels = made(folder, known)
        write_library(executable, job, link_with_ld, [write_archive(kernels, str(folder))])
        libraries.append((folder / "model.so").read_bytes())
    assert libraries[0] == libraries[1]
    x, b = np.arange(32, dtype="float32").reshape(4, 8) - 20, np.ones(8, "float32")
    np.testing.assert_array_equal(Session(job.library_path).run([x, b])[0], np.maximum(x + b, 0))
    symbols = subprocess.run(["nm", "-D", job.library_path], capture_output=True, text=True, check=True).stdout
    assert "__tvm_ffi_main" not in symbols


def test_what_is_shown_survives_being_kept():
    kernel = KernelObject(b"\x7fELF", {"name": "f", "text": "größer"}, [{"name": "f", "text": "define"}], (1.0, 2.0))
    again = KernelObject.from_bytes(kernel.to_bytes())
    assert (again.code, again.tir, again.llvm, again.known) == (kernel.code, kernel.tir, kernel.llvm, True)


def test_a_kernel_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    from service.compiler import kernel_objects

    target = tvm_target(Target(threads=1))
    _, functions = split(lowered(), target)
    real, wrong = kernel_objects.tvm.tirx.build, sorted(functions)[-1]

    def build(mod: IRModule, target):
        if str(next(iter(mod.functions)).name_hint) == wrong:
            raise Problem("It cannot be made.")
        return real(mod, target=target)

    monkeypatch.setattr(kernel_objects.tvm.tirx, "build", build)
    known = Remembering()
    with pytest.raises(Problem) as caught:
        make_objects(functions, target, str(tmp_path), known, lambda _: None)
    assert caught.value.extensions["function"] == wrong


def test_where_the_build_is_names_the_kernels_that_are_made(tmp_path):
    target = tvm_target(Target(threads=1))
    _, functions = split(lowered(), target)
    notes = []
    make_objects(functions, target, str(tmp_path), NoKernels(), notes.append)
    named = {name for note in notes for name in note["function"].split(", ") if name}
    assert named == set(functions)
    assert "tirx.MakePackedAPI" in {note["inner_pass"] for note in notes}
    assert all(json.dumps(note) for note in notes)


def test_a_second_compilation_makes_no_kernel(make_run: MakeRun, models: dict[str, str]):
    known = Remembering()
    for expected in (False, True):
        run = make_run(models["mlp"], "fast")
        Compiler(run.emit, link_with_ld, known).compile(run.job)
        details = run.results["llvm"]["details"]
        assert (details["known_kernels"] == details["kernels"]) is expected
        assert run.end["verification"]["passed"]
