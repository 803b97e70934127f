"""The kernels of a module as object files, one each: made on all cores at once, or known from earlier Compilations."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import IRModule, relax, tirx

from service.compiler.build import lower, pass_config, with_threads
from service.compiler.clock import Duration
from service.compiler.context import extended
from service.compiler.functions import describe
from service.compiler.inner_passes import InnerPasses
from service.compiler.kernel_cache import calling_by_symbol
from service.compiler.statement_lines import given_lines, lines_made_of, with_lines
from service.compiler.target import threads, toolchain
from service.errors import JsonObject
from service.listings import llvm_functions
from service.work_folder import KERNEL_ARCHIVE, KERNEL_OBJECTS

# The pass before which a function still has the parameters that its text shows.
_FIRST_OF_HOST = "tirx.MakePackedAPI"
# Makes the only function of a module the one that the library is entered by.
_ENTRY = "tirx.AnnotateEntryFunc"
_HEAD = struct.Struct("<Q")

# Told where the build is, for the Problem of a process that dies there.
Note = Callable[[JsonObject], None]


class KnownKernels(Protocol):
    """What earlier Compilations have made, by key."""

    def find(self, keys: list[str]) -> dict[str, bytes]:
        """The kernels that are known, each as `KernelObject.to_bytes` gave it."""
        ...

    def keep(self, key: str, made: bytes) -> None:
        """Makes a kernel known to later Compilations."""
        ...


class NoKernels:
    """Knows none."""

    def find(self, keys: list[str]) -> dict[str, bytes]:  # noqa: ARG002
        return {}

    def keep(self, key: str, made: bytes) -> None:
        """Forgets it."""


@dataclass(frozen=True)
class KernelObject:
    """An object file (ELF), and what is shown of it: the TensorIR that it was made of at the end, and its LLVM IR.

    `cpu_ms` is what each of the two took; nothing for one that was known.
    """

    code: bytes
    tir: JsonObject
    llvm: list[JsonObject]
    cpu_ms: tuple[float, float] = (0.0, 0.0)
    known: bool = False

    def to_bytes(self) -> bytes:
        shown = json.dumps({"tir": self.tir, "llvm": self.llvm}, ensure_ascii=False).encode()
        return _HEAD.pack(len(shown)) + shown + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> KernelObject:
        """A known one. Raises ValueError, KeyError, struct.error."""
        (size,) = _HEAD.unpack_from(data)
        shown = json.loads(data[_HEAD.size : _HEAD.size + size])
        return cls(data[_HEAD.size + size :], shown["tir"], shown["llvm"], known=True)


@dataclass(frozen=True)
class Kernels:
    """All kernels of a library, in the order of their names, and what it took until these were TensorIR, and code."""

    objects: list[KernelObject]
    lowering: Duration
    generating: Duration


def split(mod: IRModule, target: Any) -> tuple[Any, dict[str, tirx.PrimFunc]]:
    """`mod` lowered: an executable of its Relax functions, which calls the kernels by name, and the kernels.

    Raises what tvm raises.
    """
    lowered = lower(with_lines(mod), target)
    kernels = {
        str(gvar.name_hint): function
        for gvar, function in lowered.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    calling = with_threads(calling_by_symbol(lowered, {name: name for name in kernels}), threads(target))
    with target, extended({}, disabled=[_ENTRY]):
        return relax.build(calling, target, relax_pipeline=None), kernels


def make_objects(
    kernels: Mapping[str, tirx.PrimFunc], target: Any, folder: str, known: KnownKernels, note: Note
) -> Kernels:
    """The objects of `kernels`. Files in `folder` are used on the way.

    `note` is told which kernels are being made. Raises what tvm raises.
    """
    start = time.perf_counter()
    keys = {name: _key(name, kernels[name], target) for name in sorted(kernels)}
    found = known.find(list(keys.values()))
    slots = [str(Path(folder) / name) for name in KERNEL_OBJECTS[: len(os.sched_getaffinity(0))]]
    maker = _Maker(target, slots, note)
    missing = [name for name, key in keys.items() if key not in found]
    with concurrent.futures.ThreadPoolExecutor(len(slots)) as pool:
        made = {name: pool.submit(maker.make, name, kernels[name]) for name in missing}
        try:
            for name in missing:
                known.keep(keys[name], made[name].result().to_bytes())
        finally:
            pool.shutdown(cancel_futures=True)
    objects = [
        made[name].result() if name in made else KernelObject.from_bytes(found[key]) for name, key in keys.items()
    ]
    lowering, generating = (sum(each.cpu_ms[part] for each in objects) for part in (0, 1))
    # Threads do both at once: the time that has passed is shared out as the CPU time is.
    share = lowering / ((lowering + generating) or 1.0)
    passed = (time.perf_counter() - start) * 1e3
    return Kernels(objects, Duration(passed * share, lowering), Duration(passed * (1 - share), generating))


def _key(name: str, function: tirx.PrimFunc, target: Any) -> str:
    """What the object depends on. Its name and lines too: debuggers, profiles and listings show them."""
    context = tvm.transform.PassContext.current()
    content = [
        name,
        tvm_ffi.structural_hash(function),
        given_lines(function),
        [str(parameter.ty) for parameter in function.params],
        str(target),
        toolchain(),
        context.opt_level,
        sorted(map(str, context.disabled_pass)),
        sorted((key, str(value)) for key, value in context.config.items()),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class _Maker:
    """Makes objects, in as many threads at once as there are files for them. TVM releases Python's lock meanwhile."""

    def __init__(self, target: Any, slots: list[str], note: Note) -> None:
        self._target = target
        self._free = slots
        self._note = note
        self._context = tvm.transform.PassContext.current()
        self._running: dict[str, str] = {}
        self._lock = threading.Lock()

    def make(self, name: str, function: tirx.PrimFunc) -> KernelObject:
        with self._lock:
            file = self._free.pop()
        try:
            return self._made(IRModule({name: function.with_attr("global_symbol", name)}), name, file)
        finally:
            with self._lock:
                self._free.append(file)
                self._running.pop(name, None)

    def _made(self, mod: IRModule, name: str, file: str) -> KernelObject:
        inner = InnerPasses(lambda names: self._follow(name, names))
        lowered = _Lowered()
        start = time.thread_time()
        with inner.named(mod), extended(pass_config(mod), self._context, [lowered, inner], [_ENTRY]):
            library = tvm.tirx.build(mod, target=self._target)
        llvm = llvm_functions(library.inspect_source("ll"))
        library.write_to_file(file)
        code = Path(file).read_bytes()
        times = (start, lowered.end or start, time.thread_time())
        return KernelObject(code, lowered.entry, llvm, ((times[1] - times[0]) * 1e3, (times[2] - times[1]) * 1e3))

    def _follow(self, name: str, names: JsonObject) -> None:
        with self._lock:
            self._running[name] = str(names.get("inner_pass") or "")
            functions = ", ".join(sorted(self._running))
            self._note({"inner_pass": self._running[name] or None, "function": functions})


@tvm.instrument.pass_instrument
class _Lowered:
    """Sees the kernel as it is before its arguments are packed."""

    def __init__(self) -> None:
        self.entry: JsonObject = {}
        self.end: float | None = None

    def run_before_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM before each pass, nested ones too."""
        if info.name == _FIRST_OF_HOST and self.end is None:
            ((gvar, function),) = mod.functions.items()
            # The target is the same for all, and long.
            bare = function.without_attr("target")
            self.entry = {**describe(str(gvar.name_hint), bare).entry, "made_of": lines_made_of(bare)}
            self.end = time.thread_time()


def write_archive(kernels: Kernels, folder: str) -> str:
    """All objects in one file in `folder`, in the format of `ar`, which the linker reads; its path."""
    path = Path(folder) / KERNEL_ARCHIVE
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for index, each in enumerate(kernels.objects):
            # Name, time, owner, group, mode and size; no time, so that the same kernels give the same bytes.
            head = f"{f'k{index}.o/':<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(each.code):<10}`\n"
            file.write(head.encode() + each.code + b"\n" * (len(each.code) % 2))
    return str(path)
