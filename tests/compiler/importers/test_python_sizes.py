"""Numbers and sequences of Python that a graph would make without end: refused before they are made."""

from __future__ import annotations

import pytest

from service.compiler.importers.python_sizes import MAX_BITS, MAX_ITEMS, check_sizes
from service.errors import ImportFailed


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("operator.pow", (9, 387420489)),
        ("operator.ipow", (2, MAX_BITS + 1)),
        ("operator.lshift", (1, 1 << 40)),
        ("operator.mul", (1 << MAX_BITS, 2)),
        ("operator.imul", (1 << MAX_BITS, 2)),
        ("operator.mul", ([0], MAX_ITEMS + 1)),
        ("operator.mul", (MAX_ITEMS + 1, (0,))),
        ("operator.add", ((0,) * MAX_ITEMS, (0,))),
        ("operator.concat", ([0] * MAX_ITEMS, [0])),
        ("builtins.range", (MAX_ITEMS + 1,)),
        ("builtins.range", (0, 1 << 70)),
        ("math.prod", ([1 << 600, 1 << 600],)),
    ],
)
def test_what_grows_without_end_is_refused(name, arguments):
    with pytest.raises(ImportFailed, match="more than"):
        check_sizes(name, arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("operator.pow", (2, 63)),
        ("operator.pow", (2.0, 10**9)),
        ("operator.pow", (2, -1)),
        ("operator.lshift", (1, 62)),
        ("operator.mul", (1 << 62, 1 << 62)),
        ("operator.mul", ([0], 4)),
        ("operator.add", ((1, 2), (3,))),
        ("operator.add", (1 << 62, 1 << 62)),
        ("builtins.range", (12,)),
        ("builtins.range", (5, 0, -1)),
        ("math.prod", ((1, 3, 224, 224),)),
        ("torch.relu", (object(),)),
    ],
)
def test_what_models_compute_is_not(name, arguments):
    check_sizes(name, arguments)
