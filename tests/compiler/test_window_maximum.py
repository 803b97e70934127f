"""Max pooling as PyTorch does it, NaN and infinities included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tvm import relax

from service.compiler.window_maximum import max_pool2d
from tests.compiler.conftest import run_module


@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation"),
    [((2, 2), (2, 2), (0, 0), (1, 1)), ((3, 2), (2, 1), (1, 1), (1, 1)), ((2, 2), (1, 1), (1, 0), (2, 3))],
)
def test_the_largest_of_each_window_is_pytorchs(window, stride, padding, dilation) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype("float32")
    x[0, 0, 0, 0], x[0, 1], x[1, 2, 3, 3] = np.nan, -np.inf, np.inf
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType([2, 3, 9, 8], "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(
                builder.call_te(lambda t: max_pool2d(t, window, stride, padding, dilation), data)
            )
        builder.emit_func_output(result)
    expected = torch.nn.functional.max_pool2d(torch.from_numpy(x), window, stride, padding, dilation)
    np.testing.assert_array_equal(run_module(builder.get(), x)[0], expected.numpy())
