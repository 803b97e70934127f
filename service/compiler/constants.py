"""Tensors of PyTorch as constants of Relax."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
import tvm
from tvm import relax

from service.runtime.session import Array


def array_of(tensor: torch.Tensor) -> Array:
    """A copy of `tensor` as a contiguous array; bfloat16, which numpy lacks, is that of ml_dtypes."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.dtype is torch.bfloat16:
        return np.array(plain.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.array(plain.numpy())


def tensor_of(array: Array) -> torch.Tensor:
    """The inverse of `array_of`, also a copy."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def relax_constant(tensor: torch.Tensor) -> Any:
    """`tensor` as a constant of the same shape and dtype."""
    array = array_of(tensor)
    if array.size == 0:
        return relax.const(tvm.runtime.empty(array.shape, array.dtype.name))
    return relax.const(tvm.runtime.tensor(array))
