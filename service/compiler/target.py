"""The CPU that a library is built for, and the versions of what builds it."""

from __future__ import annotations

import functools
import hashlib
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import tvm
from tvm.target import codegen

from service.errors import BuildFailed, JsonObject, nearest
from service.host_cpu import host_flags
from service.nouns import Target

NATIVE = "native"

# LLVM's name of each instruction set extension that its code generator emits, and the name that Linux gives it where
# that is another one. Extensions outside the table need intrinsics or privileges and are never emitted by themselves.
_LINUX_FLAGS = {
    **dict.fromkeys(("sse2", "ssse3", "sse4a", "popcnt", "avx", "avx2", "fma", "fma4", "xop", "f16c", "bmi2", "adx")),
    **dict.fromkeys(("avx512f", "avx512dq", "avx512ifma", "avx512cd", "avx512bw", "avx512vl", "gfni", "vaes")),
    **dict.fromkeys(("aes", "movbe", "tbm", "vpclmulqdq", "lwp")),
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "crc32": "sse4_2",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "sha": "sha_ni",
    "sahf": "lahf_lm",
    "cx16": "cx16",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vp2intersect": "avx512_vp2intersect",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}


def tvm_target(target: Target) -> Any:
    """The `tvm.target.Target` of a Recipe's target: this host's CPU with the features it really has, or the CPU named.

    Its ``num-cores`` is the number of threads; it has none where all cores are meant.
    Raises BuildFailed naming `target.cpu` when LLVM knows no such CPU.
    """
    cores = {"num-cores": target.threads} if target.threads else {}
    if target.cpu == NATIVE:
        return tvm.target.Target({"kind": "llvm", "mcpu": host_cpu(), "mattr": list(_hidden_features()), **cores})
    known = _known_cpus()
    if target.cpu not in known:
        near = nearest(target.cpu, known)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BuildFailed(
            f"`target.cpu` is {target.cpu!r}, which LLVM does not know; use 'native' or an LLVM CPU name.{hint}",
            field="target.cpu",
            nearest=near,
        )
    return tvm.target.Target({"kind": "llvm", "mcpu": target.cpu, **cores})


def threads(target: Any) -> int:
    """The number of threads of a `tvm.target.Target`; 0 stands for all cores."""
    return int(target.attrs.get("num-cores", 0))


def features(target: Any) -> list[str]:
    """The CPU features that a library for `target` may use, sorted; a host without one of them must not load it."""
    off = {str(feature)[1:] for feature in target.attrs.get("mattr", ()) if str(feature).startswith("-")}
    usable = {str(feature) for feature in codegen.llvm_get_cpu_features(target)} - off
    return sorted(usable & set(_LINUX_FLAGS)) or sorted(usable)


def cpu_flags(target: Any) -> list[str]:
    """The same as Linux names them in /proc/cpuinfo, sorted; features that it does not name are left out."""
    return sorted(_LINUX_FLAGS[name] or name for name in features(target) if name in _LINUX_FLAGS)


@functools.cache
def host_cpu() -> str:
    """LLVM's name of this host's CPU."""
    return str(codegen.llvm_get_system_cpu())


@functools.cache
def toolchain() -> JsonObject:
    """What decides the result of a Compilation besides the request: our code, versions, what ``native`` means."""
    native = features(tvm_target(Target()))
    return {
        "compiler": _digest_of_sources(),
        "tvm": metadata.version("apache-tvm"),
        "tvm_ffi": metadata.version("apache-tvm-ffi"),
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
        "cpu": host_cpu(),
        "cpu_features": hashlib.sha256(",".join(native).encode()).hexdigest()[:16],
    }


@functools.cache
def _digest_of_sources() -> str:
    """Changes with any change of this package or the runtime: nothing that an older one compiled is taken for ours.

    Cached, because a sandboxed worker may not read them.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted([*package.rglob("*.py"), *(package.parent / "runtime").rglob("*.py")]):
        digest.update(f"{source.relative_to(package.parent)}\n".encode() + source.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _known_cpus() -> frozenset[str]:
    return frozenset(str(name) for name in codegen.llvm_get_cpu_archlist(tvm.target.Target({"kind": "llvm"})))


@functools.cache
def _hidden_features() -> tuple[str, ...]:
    """``-feature`` for each that LLVM's model of this CPU has but the machine does not, as under some hypervisors.

    Cached, because a sandboxed worker may not read /proc any more: the process it was forked from has asked before.
    """
    flags = host_flags()
    if not flags:
        return ()
    model = codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm", "mcpu": host_cpu()}))
    names = sorted(str(feature) for feature in model)
    return tuple(f"-{name}" for name in names if name in _LINUX_FLAGS and (_LINUX_FLAGS[name] or name) not in flags)
