"""How many rows and columns the tiles have."""

from __future__ import annotations

import pytest

from service.compiler.schedules.tile import best_rows, even_tiles, form_of, halving_tiles, panel_vectors
from tests.compiler.schedules.kernels import UNITS


@pytest.mark.parametrize("total", [1, 5, 13, 14, 15, 17, 29, 49, 112, 197])
def test_tiles_cover_all_rows_once(total):
    tiles = even_tiles(total, 14)
    assert sum(size * times for size, times in tiles) == total
    assert all(size <= 14 for size, _ in tiles)
    assert max(size for size, _ in tiles) - min(size for size, _ in tiles) <= 1


def test_a_size_that_divides_is_taken():
    assert even_tiles(196, 14) == [(14, 14)]
    assert even_tiles(110, 14) == [(11, 10)]


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.name)
def test_a_tile_fits_into_the_registers(unit):
    for vectors in (1, 2, 3):
        assert best_rows(unit, vectors) * vectors + vectors + 1 <= unit.registers


def test_what_is_left_of_symbolic_rows_is_covered_by_halves():
    sizes = halving_tiles(14)
    for rest in range(14):
        left = rest
        for size in sizes:
            left -= left // size * size
        assert left == 0


def test_small_tiles_have_their_sums_split():
    assert form_of(UNITS["avx2"], 1, 1).splits == 4
    assert form_of(UNITS["avx2"], 6, 2).splits == 1


def test_panels_leave_as_little_over_as_they_can():
    assert [panel_vectors(columns, 16) for columns in (1, 16, 17, 32, 48, 96, 144)] == [1, 1, 2, 2, 3, 2, 3]
