"""A Compilation called like a function: arguments by position or name, numpy or torch, in and out.

torch is never imported here: whoever gives a tensor has imported it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from relaxd.nouns import Signature
from relaxd.tensors import Array


def loaded_torch() -> Any | None:
    """The module torch where it is imported already, else None."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor."""
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(tensor: Any, name: str) -> Array:
    """The values of a torch tensor. Raises TypeError for bfloat16 where the package ml_dtypes is missing."""
    torch: Any = loaded_torch()
    tensor = tensor.detach().cpu()
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy()  # type: ignore[no-any-return]
    try:
        bfloat16 = importlib.import_module("ml_dtypes").bfloat16
    except ImportError as error:
        raise TypeError(f"input {name!r} is bfloat16, which numpy has with the package ml_dtypes only") from error
    return tensor.contiguous().view(torch.int16).numpy().view(bfloat16)  # type: ignore[no-any-return]


def name_arguments(
    signature: Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], Any | None]:
    """The inputs by name, and the first torch tensor among them. Raises TypeError as a function call would."""
    if signature is None:
        raise TypeError("this Compilation has no Signature: it has not ended, or failed")
    names = [spec.name for spec in signature.inputs]
    if len(args) > len(names):
        raise TypeError(f"the model takes {len(names)} inputs ({', '.join(names)}), but {len(args)} were given")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise TypeError(f"the model has no input {name!r}; it has {', '.join(names)}")
        if name in given:
            raise TypeError(f"the input {name!r} was given twice")
        given[name] = value
    missing = [name for name in names if name not in given]
    if missing:
        raise TypeError(f"inputs are missing: {', '.join(missing)}")
    first = next((value for value in given.values() if is_tensor(value)), None)
    return {name: to_numpy(value, name) if is_tensor(value) else value for name, value in given.items()}, first


def call_outputs(outputs: Mapping[str, Array], signature: Signature | None, like: Any | None) -> Any:
    """The one output, or a tuple in the Signature's order; as torch tensors on the device of `like` if that is one."""
    specs = signature.outputs if signature is not None else ()
    values: list[Any] = [outputs[spec.name] for spec in specs if spec.name in outputs] or list(outputs.values())
    if like is not None:
        torch: Any = loaded_torch()
        dtypes = [spec.dtype for spec in specs] if len(specs) == len(values) else [str(value.dtype) for value in values]
        values = [
            torch.from_numpy(value).to(device=like.device, dtype=getattr(torch, dtype))
            for value, dtype in zip(values, dtypes, strict=True)
        ]
    return values[0] if len(values) == 1 else tuple(values)
