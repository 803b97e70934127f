"""Which taps of a window the input has."""

from __future__ import annotations

from tvm import tirx

from service.compiler.schedules.computation import Axis
from service.compiler.schedules.windows import Window, tap_bounds


def window(stride, dilation, padding, size, places, taps):
    place, tap = (Axis(tirx.Var(name, "int64"), extent) for name, extent in (("y", places), ("k", taps)))
    return Window(place, tap, stride, dilation, padding, size, 1)


def test_bounds_are_those_of_the_valid_taps():
    for stride, dilation, padding, size in ((1, 1, 1, 5), (2, 1, 3, 9), (1, 2, 2, 4), (3, 2, 0, 12)):
        places, taps = (size + 2 * padding - dilation * 2 - 1) // stride + 1, 3
        each = window(stride, dilation, padding, size, places, taps)
        for place in range(places):
            low, high = (int(bound.value) for bound in tap_bounds(each, tirx.const(place, "int64")))
            assert [tap for tap in range(taps) if each.valid(place, tap)] == list(range(low, high))
