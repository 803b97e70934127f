"""The operators of Relax that a fusion pattern may name, with how many tensors each reads. A test holds it to tvm's."""

from __future__ import annotations

_BY_OPERANDS: dict[int | None, str] = {
    0: "arange eye full hamming_window ones zeros",
    1: """
    abs acos acosh argmax argmin argsort asin asinh astype atan atanh bitwise_not broadcast_to ceil clip collapse_sum_to
    cos cosh cumprod cumsum dynamic_strided_slice erf exp expand_dims flatten flip floor image.affine_grid
    image.resize2d image.resize3d isfinite isinf isnan layout_transform log logical_not max mean median min negative
    nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d
    nn.batch_flatten nn.gelu nn.gelu_tanh nn.leakyrelu nn.log_softmax nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.pad
    nn.pixel_shuffle nn.relu nn.selu nn.silu nn.softmax nn.softplus ones_like permute_dims prod repeat reshape round
    rsqrt sigmoid sign sin sinh sort sqrt square squeeze std strided_slice sum tan tanh tile tril triu trunc variance
    zeros_like eye_like
    """,
    2: """
    add atan2 bitwise_and bitwise_or bitwise_xor bucketize collapse_sum_like divide equal floor_divide floor_mod
    full_like gather_elements gather_nd greater greater_equal image.grid_sample left_shift less less_equal log_add_exp
    logical_and logical_or logical_xor matmul maximum minimum mod multiply nn.conv1d nn.conv1d_transpose nn.conv2d
    nn.conv2d_transpose nn.conv3d nn.conv3d_transpose nn.cross_entropy_with_logits nn.prelu nn.rms_norm not_equal outer
    power reverse_sequence right_shift slice_scatter subtract take vision.roi_align vision.roi_pool
    """,
    3: """
    dequantize ewise_fma nn.attention nn.group_norm nn.instance_norm nn.layer_norm nn.nll_loss one_hot quantize
    scatter_elements scatter_nd where
    """,
    4: "nn.attention_bias",
    None: "concat einsum stack",
}

# By name, how many tensors an operator reads; None for any number.
OPERANDS: dict[str, int | None] = {name: count for count, names in _BY_OPERANDS.items() for name in names.split()}

# Operators that give several tensors: a group, which gives one, cannot have them.
_TUPLES = "meshgrid nn.batch_norm nn.dropout split topk unique vision.get_valid_counts"
TUPLES = frozenset(_TUPLES.split())

# Other words for the same: of PyTorch, of ONNX and of the lecture.
ALIASES = {
    "dense": "matmul",
    "linear": "matmul",
    "transpose": "permute_dims",
    "permute": "permute_dims",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negative",
    "leaky_relu": "nn.leakyrelu",
    "fma": "ewise_fma",
}

_COMMUTATIVE = """
    add multiply maximum minimum equal not_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    log_add_exp
    """
COMMUTATIVE = frozenset(_COMMUTATIVE.split())

# The result has the shape and the dtype of the one operand.
_POINTWISE = """
    abs acos acosh asin asinh atan atanh ceil clip cos cosh erf exp floor log negative nn.gelu nn.gelu_tanh nn.leakyrelu
    nn.log_softmax nn.relu nn.selu nn.silu nn.softmax nn.softplus round rsqrt sigmoid sign sin sinh sqrt square tan tanh
    trunc
    """
POINTWISE = frozenset(_POINTWISE.split())

# The operands broadcast and have one dtype, which is the result's too.
_BROADCASTING = "add subtract multiply divide floor_divide floor_mod maximum minimum mod power"
BROADCASTING = frozenset(_BROADCASTING.split())


def full_name(word: str) -> str | None:
    """The operator of that name as `OPERANDS` or `TUPLES` has it: ``relu``, ``nn.relu`` and ``relax.nn.relu`` are one.

    None where Relax has no such operator.
    """
    name = word.removeprefix("relax.")
    for candidate in (name, ALIASES.get(name, ""), f"nn.{name}"):
        if candidate in OPERANDS or candidate in TUPLES:
            return candidate
    return None
