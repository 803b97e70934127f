"""Running one scheduled kernel on arrays, beside the function that it stands for."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tvm
from hypothesis import HealthCheck, settings
from tvm import IRModule, te

from service.compiler.build import pass_config
from service.compiler.schedules.computation import read
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.vector_unit import _ROWS
from service.compiler.target import tvm_target
from service.nouns import Target

UNITS = {unit.name: unit for _, unit in _ROWS}
SIZES = (1, 2, 3, 7, 13, 15, 16, 17, 31, 33, 48, 65, 130)

FEW = settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def scheduled(
    schedule: Any,
    tensors: list[Any],
    constants: dict[int, np.ndarray] | None = None,
    unit: str = "avx2",
    wanted: Any = None,
    *,
    parallel: bool = True,
) -> Kernel:
    """The kernel for the function with these TE tensors as parameters; `constants` by the position of a parameter."""
    program = read(te.create_prim_func(tensors, "int64"))
    known = {program.parameters[index]: (value,) for index, value in (constants or {}).items()}
    return schedule("main", program, Situation(UNITS[unit], constants=known, wanted=wanted, parallel=parallel))


@functools.lru_cache(maxsize=1)
def compiled(function: Any) -> Any:
    mod = IRModule({"main": function.with_attr("global_symbol", "main")})
    with tvm.transform.PassContext(config=pass_config(mod)):
        return tvm.compile(mod, target=tvm_target(Target()))


def run(kernel: Kernel, inputs: list[np.ndarray], out: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """What the kernel writes, for inputs that are packed as it wants them; the memory before is NaN."""
    arguments = [kernel.packings[i](value) if i in kernel.packings else value for i, value in enumerate(inputs)]
    result = tvm.runtime.tensor(np.full(out, np.nan if "float" in dtype else 77).astype(dtype))
    compiled(kernel.function)["main"](*[tvm.runtime.tensor(np.ascontiguousarray(each)) for each in arguments], result)
    return result.numpy()


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def close(mine: np.ndarray, theirs: np.ndarray, tolerance: float = 2e-5) -> None:
    scale = float(np.abs(theirs[np.isfinite(theirs)]).max()) if np.isfinite(theirs).any() else 1.0
    np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * max(scale, 1e-30))
