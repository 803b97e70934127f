"""Runs the compiled model of this folder: `model.so` and `manifest.json`. It needs numpy and apache-tvm, nothing else.

    python run.py                        what the model takes and gives
    python run.py inputs.npz outputs.npz runs it on arrays by name

As a module: ``Model(folder)(x=array)`` gives the outputs by name. One Model a thread.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# tvm imports torch where it is installed, for seconds; it has no use for it here.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

import numpy as np  # noqa: E402
import tvm  # noqa: E402
from tvm import relax  # noqa: E402

ALIGNMENT = 64


class Model:
    """A compiled model, loaded. Raises RuntimeError where this CPU or this TVM is not what it was built for."""

    def __init__(self, folder: Path) -> None:
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        self.inputs: list[dict[str, Any]] = self.manifest["signature"]["inputs"]
        self.outputs: list[dict[str, Any]] = self.manifest["signature"]["outputs"]
        _check_cpu(self.manifest.get("cpu_flags", []))
        wanted = self.manifest["toolchain"]["tvm"]
        if tvm.__version__.split(".")[:2] != wanted.split(".")[:2]:
            raise RuntimeError(f"the library was built by TVM {wanted}, this is {tvm.__version__}")
        library = tvm.get_global_func("ffi.Module.load_from_file.so")(str(folder / "model.so"), "so")
        self._run = relax.VirtualMachine(library, tvm.cpu())[self.manifest["entry"]]

    def __call__(self, **arrays: Any) -> dict[str, Any]:
        """The outputs by name. Raises ValueError where the arrays are not those of the Signature."""
        arguments = []
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            if spec["name"] not in arrays:
                raise ValueError(f"the input {spec['name']!r} is missing")
            arguments.append(_tensor(_checked(np.asarray(arrays.pop(spec["name"])), spec, sizes)))
        if arrays:
            raise ValueError(f"the model has no input {next(iter(arrays))!r}")
        results = _flat(self._run(*arguments))
        return {spec["name"]: value for spec, value in zip(self.outputs, results, strict=True)}


def _check_cpu(needed: list[str]) -> None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return
    has = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    lacking = [] if has is None else [flag for flag in needed if flag not in has]
    if lacking:
        raise RuntimeError(f"this CPU lacks {', '.join(lacking)}, which the library needs")


def _checked(array: Any, spec: dict[str, Any], sizes: dict[str, int]) -> Any:
    if array.dtype.name != spec["dtype"] or array.ndim != len(spec["shape"]):
        raise ValueError(
            f"the input {spec['name']!r} must be {spec['dtype']} of shape {spec['shape']}, "
            f"not {array.dtype.name} of {list(array.shape)}"
        )
    for size, dim in zip(array.shape, spec["shape"], strict=True):
        known = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
        if size != known:
            raise ValueError(f"the input {spec['name']!r} has shape {list(array.shape)}, not {spec['shape']}")
    return array


def _tensor(array: Any) -> Any:
    """A copy that starts at a multiple of 64 bytes: kernels use aligned vector loads."""
    if array.size == 0 or array.dtype.kind == "V":
        return tvm.runtime.empty(array.shape, str(array.dtype)).copyfrom(np.ascontiguousarray(array))
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return tvm.runtime.from_dlpack(copy)


def _flat(result: Any) -> list[Any]:
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [array for part in result for array in _flat(part)]


def main(arguments: list[str]) -> int:
    """The command line; its exit code."""
    model = Model(Path(__file__).resolve().parent)
    if len(arguments) != 2:
        for kind, specs in (("takes", model.inputs), ("gives", model.outputs)):
            for spec in specs:
                sys.stdout.write(f"{kind} {spec['name']}: {spec['dtype']} {spec['shape']}\n")
        return 0 if not arguments else 2
    outputs = model(**dict(np.load(arguments[0], allow_pickle=False)))
    np.savez(arguments[1], **outputs)
    for name, value in outputs.items():
        sys.stdout.write(f"{name}: {value.dtype} {list(value.shape)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
