"""From what a reader found to torch tensors: bytes and windows that were checked, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from service.compiler.readers.torch_file import StoredTensor


def restore(tree: Any, storages: Mapping[str, bytes]) -> Any:
    """The tree with tensors in place of StoredTensor; tensors of one storage share its memory."""
    return _restore(tree, storages, {})


def _restore(tree: Any, storages: Mapping[str, bytes], made: dict[str, torch.Tensor]) -> Any:
    if isinstance(tree, StoredTensor):
        return tensor_of(tree, storages, made)
    if isinstance(tree, dict):
        return {key: _restore(part, storages, made) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_restore(part, storages, made) for part in tree)
    return tree


def tensor_of(stored: StoredTensor, storages: Mapping[str, bytes], made: dict[str, torch.Tensor]) -> torch.Tensor:
    """The tensor of a window. `made` keeps the bytes of storages that were met before."""
    if stored.storage not in made:
        data = storages[stored.storage]
        made[stored.storage] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0)
    window = stored.window
    dtype: torch.dtype = getattr(torch, window.dtype)
    whole = torch.empty(0, dtype=dtype).set_(made[stored.storage].untyped_storage())
    tensor = whole.as_strided(window.sizes, window.strides, window.offset)
    if stored.is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=stored.requires_grad and dtype.is_floating_point)
    return tensor.requires_grad_() if stored.requires_grad and tensor.is_floating_point() else tensor
