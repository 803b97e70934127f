"""From the module after the last pass to a shared library. What the last Snapshot shows is what is built."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import IRModule, relax, te, tirx
from tvm.relax.backend.cpu_generic import pipeline as cpu_generic

from service.compiler.context import extended
from service.compiler.dataflow import is_primitive, relax_functions
from service.compiler.operator_map import legalize
from service.compiler.target import features, host_cpu, threads, toolchain
from service.errors import BuildFailed, JsonObject, OutputTooLarge
from service.nouns import CompileJob, Signature
from service.runtime.session import ENTRY
from service.runtime.threads import THREADS

# Marks the functions that the schedule pass has written.
SCHEDULED = "scheduled"

# Makes a shared library at a path from object files. Raises BuildFailed.
Linker = Callable[[str, list[str]], None]


def build_executable(mod: IRModule, target: Any) -> Any:
    """`mod` as an executable in memory, lowered by `lower`. Raises what tvm raises."""
    with target:
        mod = lower(mod, target)
        if not any(isinstance(function, tirx.PrimFunc) for function in mod.functions.values()):
            mod = _with_a_kernel(mod)
        if threads(target) != 1:
            mod = with_threads(mod, threads(target))
        with extended(pass_config(mod)):
            return relax.build(mod, target=target, relax_pipeline=None)


def pass_config(mod: IRModule) -> JsonObject:
    """The configuration of TVM's passes for the kernels of `mod`.

    StorageRewrite forgets that the small buffers of a scheduled kernel belong on the stack; each would be asked of the
    runtime wherever it is used. What is not scheduled and stands beside it takes some more memory for that.
    """
    scheduled = any(
        isinstance(function, tirx.PrimFunc) and SCHEDULED in (function.attrs or {})
        for function in mod.functions.values()
    )
    return {"tirx.disable_storage_rewrite": True} if scheduled else {}


def lower(mod: IRModule, target: Any) -> IRModule:
    """`mod` as the virtual machine can run it, kernels as TensorIR, without any further fusion.

    Operators that no pass has lowered are lowered one by one. Groups that fuse_tir has not seen become one kernel
    each, since the virtual machine cannot call a group. Raises what tvm raises.
    """
    with target:
        mod = _sequence(cpu_generic.library_dispatch_passes(target), mod)
        mod = legalize(mod)
        if any(is_primitive(function) for _, function in relax_functions(mod)):
            mod = relax.transform.FuseTIR()(mod)
        mod = _sequence(cpu_generic.dataflow_lower_passes(target), mod)
        return _sequence(cpu_generic.finalize_passes(target), mod)


def _with_a_kernel(mod: IRModule) -> IRModule:
    """A module without any kernel (an identity, say) would be exported as C source, which `ld` cannot link."""
    a = te.placeholder((1,), name="a")
    kernel = te.create_prim_func([a, te.compute((1,), lambda i: a[i], name="b")])
    mod = IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    mod["relaxd_no_kernel"] = kernel.with_attr("global_symbol", "relaxd_no_kernel")
    return mod


def with_threads(mod: IRModule, number: int) -> IRModule:
    """`mod` whose library says with how many threads it is to be run."""
    tell = tirx.PrimFunc([], tirx.Return(tirx.const(number, "int32")))
    mod = IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    mod[THREADS] = tell.with_attr("global_symbol", THREADS)
    return mod


def _sequence(passes: list[Any], mod: IRModule) -> IRModule:
    return tvm.transform.Sequential(passes)(mod)


def write_library(executable: Any, job: CompileJob, link: Linker, archives: Sequence[str] = ()) -> int:
    """Links `executable` and all of `archives` to `job.library_path`; its objects go to `job.work_dir`.

    Returns the library's size in bytes.

    Raises BuildFailed when linking fails, OutputTooLarge when the library is over its limit.
    """

    def fcompile(output: str, objects: list[str], **_: Any) -> None:
        link(output, [*objects, *archives])

    executable.export_library(job.library_path, fcompile=fcompile, workspace_dir=job.work_dir)
    size = Path(job.library_path).stat().st_size
    if size > job.limits.library_bytes:
        raise OutputTooLarge(
            f"The library has {size} bytes, the limit is {job.limits.library_bytes}. "
            "Use a smaller model or ask the operator to raise the limit.",
            limit_bytes=job.limits.library_bytes,
        )
    return size


def link_with_ld(output: str, objects: list[str]) -> None:
    """The default Linker: plain `ld`, a tenth of the time of a compiler driver and the same bytes every time."""
    command = ["ld", "-shared", "--build-id=none", "-o", output, "--whole-archive", *objects]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own files
    except FileNotFoundError as error:
        raise BuildFailed("The linker `ld` is not installed on the server. Tell the operator.") from error
    if done.returncode != 0:
        raise BuildFailed(f"The linker failed: {done.stderr.strip()[:300]}")


def manifest(job: CompileJob, signature: Signature, target: Any, library_bytes: int) -> JsonObject:
    """What a loader must know of the library, as JSON."""
    return {
        "signature": signature.to_json(),
        "entry": ENTRY,
        "target": job.recipe.target.to_json(),
        "cpu": str(target.attrs.get("mcpu", host_cpu())),
        "features": features(target),
        "toolchain": {name: toolchain()[name] for name in ("tvm", "tvm_ffi", "torch")},
        "library_bytes": library_bytes,
    }
