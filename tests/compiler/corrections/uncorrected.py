"""TVM's own importer and build, without any correction: when it gets an example right, its correction can go."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from tests.cases.programs import Calls, arrays_of, eager


def upstream_is_right(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether plain TVM gives eager's dtypes, shapes and values; an exception counts as wrong."""
    module = Calls(function)
    expected = eager(module, args)
    try:
        program = torch.export.export(module, copy.deepcopy(args))
        executable = relax.build(from_exported_program(program), target="llvm")
        machine = relax.VirtualMachine(executable, tvm.cpu())
        result = machine["main"](*[tvm.runtime.tensor(each) for each in arrays_of(args)])
    except Exception:
        return False
    actual = [each.numpy() for each in result]
    if len(actual) != len(expected):
        return False
    return all(
        mine.dtype == theirs.dtype
        and mine.shape == theirs.shape
        and np.allclose(mine.astype("float64"), theirs.astype("float64"), 1e-3, 1e-4, equal_nan=True)
        for mine, theirs in zip(actual, expected, strict=True)
    )
