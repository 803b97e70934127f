"""Drawn programs against eager: operators from tables, dtypes, shapes that broadcast, options and special values.

The profile is deterministic and short; RELAXD_LONG_TESTS=1 draws a hundred times as many.
"""

from __future__ import annotations

import os

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cases.programs import try_program

FACTOR = 100 if os.environ.get("RELAXD_LONG_TESTS") else 1
SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.5, 2.5, 0.5, 1e-40, -7.0, 1e20]
WHOLE = [0, 1, -1, 2, -3, 7, 100, -128]
DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]

BINARY = {
    **{name: getattr(torch, name) for name in "add sub mul div maximum minimum fmax fmin atan2 copysign".split()},
    **{name: getattr(torch, name) for name in "eq ne lt le gt ge logical_and logical_or logical_xor".split()},
    **{name: getattr(torch, name) for name in "remainder fmod floor_divide bitwise_and bitwise_or bitwise_xor".split()},
}
REDUCTIONS = "sum prod amax amin any all mean argmax argmin cumsum cumprod".split()
SHAPES = [(3, 4), (1, 4), (3, 1), (4,), (), (2, 3, 4), (0, 4)]


def profile(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    # Shrinking compiles hundreds of programs: the drawn one is small enough to read.
    phases = [Phase.explicit, Phase.generate]
    return settings(
        max_examples=examples * FACTOR, deadline=None, derandomize=True, suppress_health_check=checks, phases=phases
    )


def tensor(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype, nonzero: bool = False) -> torch.Tensor:
    pool = SPECIAL if dtype.is_floating_point else WHOLE
    count = torch.Size(shape).numel()
    values = draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))
    made = torch.tensor(values, dtype=torch.float64 if dtype.is_floating_point else torch.int64).to(dtype)
    if nonzero and not dtype.is_floating_point:
        made = torch.where(made == 0, torch.ones_like(made), made)
    return made.reshape(shape)


@st.composite
def binary_programs(draw: st.DrawFn):
    names = draw(st.lists(st.sampled_from(sorted(BINARY)), min_size=3, max_size=3, unique=True))
    shapes = draw(st.sampled_from([(a, b) for a in SHAPES for b in SHAPES if _broadcast(a, b)]))
    dtypes = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(DTYPES))
    number = draw(st.sampled_from([None, 2, -3, 0.5, True]))
    left = tensor(draw, shapes[0], dtypes[0])
    right = tensor(draw, shapes[1], dtypes[1], nonzero=True)
    return names, number, left, right


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        torch.broadcast_shapes(a, b)
    except RuntimeError:
        return False
    return True


@profile(15)
@given(binary_programs())
def test_binary_operators_of_any_two_dtypes_and_shapes_are_eager_s(program) -> None:
    names, number, left, right = program

    def defined(name: str) -> bool:
        try:
            BINARY[name](left, right if number is None else number)
        except (RuntimeError, TypeError, ZeroDivisionError):
            return False
        return True

    kept = [name for name in names if defined(name)]
    if not kept:
        return

    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(BINARY[name](x, y if number is None else number) for name in kept)

    assert try_program(forward, (left, right)).kind == "equal"


@st.composite
def reductions(draw: st.DrawFn):
    shape = draw(st.sampled_from([(3, 4), (2, 3, 4), (4,), ()]))
    dim = draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    keep = draw(st.booleans())
    return draw(st.sampled_from(REDUCTIONS)), tensor(draw, shape, draw(st.sampled_from(DTYPES))), dim, keep


@profile(30)
@given(reductions())
def test_reductions_with_and_without_dim_are_eager_s(drawn) -> None:
    name, x, dim, keep = drawn
    operator = getattr(torch, name)
    options = {} if dim is None else {"dim": dim}
    if dim is not None and name not in ("cumsum", "cumprod"):
        options["keepdim"] = keep
    try:
        operator(x, **options)
    except (RuntimeError, TypeError):
        return
    assert try_program(lambda v: operator(v, **options), (x,)).kind == "equal"


@profile(12)
@given(st.data())
def test_indexing_with_negative_and_broadcast_indices_is_eager_s(data) -> None:
    shape = data.draw(st.sampled_from([(4,), (3, 4), (2, 3, 4)]))
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, max_size=len(shape), unique=True))
    forms = st.sampled_from([(3,), (2, 1), (1, 3), ()])
    indices: list[torch.Tensor | None] = [None] * len(shape)
    for axis in axes:
        form = data.draw(forms)
        count = torch.Size(form).numel()
        bounds = st.integers(-shape[axis], shape[axis] - 1)
        indices[axis] = torch.tensor(data.draw(st.lists(bounds, min_size=count, max_size=count))).reshape(form)
    given_indices = tuple(index for index in indices if index is not None)
    try:
        torch.broadcast_shapes(*[index.shape for index in given_indices])
    except RuntimeError:
        return

    def forward(x: torch.Tensor, *drawn: torch.Tensor) -> torch.Tensor:
        rest = iter(drawn)
        return torch.ops.aten.index.Tensor(x, [None if index is None else next(rest) for index in indices])

    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    assert try_program(forward, (x, *given_indices)).kind == "equal"


@profile(8)
@given(
    rank=st.sampled_from([1, 2]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    ceil_mode=st.booleans(),
    counted=st.booleans(),
    size=st.integers(4, 9),
)
def test_average_and_maximum_pools_of_any_window_are_eager_s(rank, kernel, stride, padding, ceil_mode, counted, size):
    padding = min(padding, kernel // 2)
    average = getattr(torch.nn.functional, f"avg_pool{rank}d")
    largest = getattr(torch.nn.functional, f"max_pool{rank}d")

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return average(x, kernel, stride, padding, ceil_mode, counted), largest(
            x, kernel, stride, padding, 1, ceil_mode
        )

    x = torch.randn(1, 2, *[size] * rank, generator=torch.Generator().manual_seed(size))
    assert try_program(forward, (x,)).kind == "equal"


@profile(4)
@given(
    mode=st.sampled_from(["nearest", "nearest-exact", "bilinear", "bicubic", "area"]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    align=st.booleans(),
    antialias=st.booleans(),
    special=st.booleans(),
)
def test_images_are_resized_as_eager_does_in_every_mode(mode, size, align, antialias, special) -> None:
    smooth = mode in ("bilinear", "bicubic")
    options = {"align_corners": align, "antialias": antialias and not align} if smooth else {}
    x = torch.randn(1, 2, 5, 7, generator=torch.Generator().manual_seed(size[0]))
    if special and mode != "bicubic":
        x[0, 0, 2, 3] = float("inf")
    assert (
        try_program(lambda x: torch.nn.functional.interpolate(x, size=size, mode=mode, **options), (x,)).kind == "equal"
    )


@profile(5)
@given(
    data=st.data(),
    reduce=st.sampled_from(["sum", "prod", "amax", "amin"]),
    dtype=st.sampled_from([torch.float32, torch.int64]),
)
def test_scatters_and_gathers_of_any_index_are_eager_s(data, reduce, dtype) -> None:
    axis = data.draw(st.sampled_from([0, 1, -1]))
    rows = data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    index = torch.tensor(rows).reshape(2, 3) if axis == 0 else torch.tensor(rows).reshape(3, 2)
    x, source = tensor(data.draw, (3, 3), dtype), tensor(data.draw, (3, 3), dtype)

    def forward(x, index, source):
        written = x.scatter(axis, index, source), x.scatter_reduce(axis, index, source, reduce)
        return (
            *written,
            x.scatter_add(axis, index, source),
            x.gather(axis, index),
            torch.take_along_dim(x, index, axis),
        )

    assert try_program(forward, (x, index, source)).kind == "equal"


@profile(4)
@given(
    kind=st.sampled_from([torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN]),
    layers=st.integers(1, 3),
    bias=st.booleans(),
    first=st.booleans(),
    both=st.booleans(),
    projected=st.booleans(),
)
def test_recurrent_layers_of_any_options_are_eager_s(kind, layers, bias, first, both, projected) -> None:
    options = {"proj_size": 2} if projected and kind is torch.nn.LSTM else {}
    torch.manual_seed(layers)
    module = kind(3, 4, layers, bias=bias, batch_first=first, bidirectional=both, **options)
    assert try_program(module, (torch.randn(4, 2, 3),)).kind == "equal"


@profile(4)
@given(
    causal=st.booleans(),
    mask=st.sampled_from([None, "bool", "float", "infinite"]),
    scale=st.sampled_from([None, 0.3]),
    grouped=st.booleans(),
    lengths=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_attention_of_any_mask_is_eager_s(causal, mask, scale, grouped, lengths) -> None:
    torch.manual_seed(lengths[0])
    q, k = torch.randn(2, 4, lengths[0], 4), torch.randn(2, 2 if grouped else 4, lengths[1], 4)
    keep = torch.rand(lengths) > 0.4
    masks = {
        "bool": keep,
        "float": torch.randn(lengths),
        "infinite": torch.where(keep, 0.0, -float("inf")),
    }
    given_mask = None if causal else masks.get(mask)
    options = {"is_causal": causal, "scale": scale, "enable_gqa": grouped}

    def forward(q, k):
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=given_mask, **options)

    assert try_program(forward, (q, k)).kind == "equal"


@profile(4)
@given(st.data())
def test_reductions_of_nothing_are_eager_s(data) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    name = data.draw(st.sampled_from([name for name in REDUCTIONS if name not in ("cumsum", "cumprod")]))
    dim, keep = data.draw(st.sampled_from([0, 1, None])), data.draw(st.booleans())
    options = {} if dim is None else {"dim": dim, "keepdim": keep}
    x = torch.zeros(3, 0).to(dtype)
    operator = getattr(torch, name)
    try:
        operator(x, **options)
    except (RuntimeError, TypeError, IndexError):
        return
    assert try_program(lambda v: operator(v, **options), (x,)).kind == "equal"
