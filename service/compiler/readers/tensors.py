"""Plain tensors as files describe them: a storage's bytes and a strided window into them that must lie inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.compiler.readers.refusal import damaged, unsafe

MAX_DIMENSIONS = 64
# Of a tensor that repeats a few bytes by strides of 0, what it would take written out.
MAX_LOGICAL_BYTES = 16 << 30

# By the number in PyTorch's export schema: the dtype's name in torch and its bytes.
SCALAR_TYPES: dict[int, tuple[str, int]] = {
    1: ("uint8", 1),
    2: ("int8", 1),
    3: ("int16", 2),
    4: ("int32", 4),
    5: ("int64", 8),
    6: ("float16", 2),
    7: ("float32", 4),
    8: ("float64", 8),
    9: ("complex32", 4),
    10: ("complex64", 8),
    11: ("complex128", 16),
    12: ("bool", 1),
    13: ("bfloat16", 2),
    28: ("uint16", 2),
    29: ("float8_e4m3fn", 1),
    30: ("float8_e5m2", 1),
    31: ("float8_e4m3fnuz", 1),
    32: ("float8_e5m2fnuz", 1),
    33: ("float8_e8m0fnu", 1),
    34: ("uint32", 4),
    35: ("uint64", 8),
}
NUMBERS = {name: number for number, (name, _) in SCALAR_TYPES.items()}
ITEM_BYTES = dict(SCALAR_TYPES.values())


@dataclass(frozen=True)
class Window:
    """A tensor's dtype and where its elements lie in its storage, in elements. Checked by `check_window`."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def check_window(window: Window, storage_bytes: int, where: str) -> None:
    """Raises DamagedModel, UnsafeModel when any element would lie outside the storage."""
    sizes, strides = window.sizes, window.strides
    if len(sizes) != len(strides) or len(sizes) > MAX_DIMENSIONS:
        raise damaged("A tensor has sizes and strides that do not belong together", where)
    if window.offset < 0 or any(size < 0 for size in sizes) or any(stride < 0 for stride in strides):
        raise unsafe("A tensor has a negative size, stride or offset", where)
    item = ITEM_BYTES[window.dtype]
    count = 1
    for size in sizes:
        count *= size
    if count * item > MAX_LOGICAL_BYTES:
        raise unsafe(f"A tensor has {count} elements", where)
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) if count else -1
    if (window.offset + last + 1) * item > storage_bytes:
        raise unsafe(f"A tensor reaches outside its storage of {storage_bytes} bytes", where)


def check_bools(data: bytes | bytearray | memoryview, dtype: str, where: str) -> None:
    """Raises DamagedModel when a bool is neither 0 nor 1: compiled code may use it as an index."""
    if dtype == "bool" and len(data) != bytes(data).count(0) + bytes(data).count(1):
        raise damaged("A tensor of bools has bytes that are neither 0 nor 1", where)


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, in elements."""
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(sizes[axis + 1], 1)
    return tuple(strides)
