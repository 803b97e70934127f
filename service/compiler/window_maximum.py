"""Max pooling of images that keeps NaN, which TVM's own loses."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from service.compiler.extrema import maximum
from service.compiler.pointwise import dtype_of

Pair = tuple[int, int]


def max_pool2d(data: Any, window: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
    """The largest of each window of `data` (n, c, h, w) as a tensor expression; NaN where one is NaN.

    What lies outside of the image, by `padding`, is smaller than everything.
    """
    height, width = data.shape[2:]
    axes = [te.reduce_axis((0, extent), name=f"k{axis}") for axis, extent in enumerate(window)]
    largest = te.comm_reducer(maximum, lambda dtype: _lowest(str(dtype)), name="largest")
    sizes = [
        tirx.floordiv(size + 2 * pad - step * (extent - 1) - 1, hop) + 1
        for size, pad, step, extent, hop in zip((height, width), padding, dilation, window, stride, strict=True)
    ]

    def element(n: Any, c: Any, i: Any, j: Any) -> Any:
        y, x = (
            at * hop + axis * step - pad
            for at, hop, axis, step, pad in zip((i, j), stride, axes, dilation, padding, strict=True)
        )
        value = data(n, c, y, x)
        if padding == (0, 0):
            return largest(value, axis=axes)
        inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        return largest(tirx.if_then_else(inside, value, _lowest(dtype_of(value))), axis=axes)

    return te.compute([*data.shape[:2], *sizes], element, name="max_pool2d")


def _lowest(dtype: str) -> Any:
    return -tirx.infinity(dtype) if "float" in dtype else tirx.min_value(dtype)
