"""Durations add up."""

from __future__ import annotations

import time

from service.compiler.clock import Duration


def test_pieces_add_up_and_sleep_costs_no_cpu() -> None:
    duration = Duration()
    for _ in range(2):
        with duration.measure():
            time.sleep(0.01)
    assert duration.wall_ms >= 20
    assert duration.cpu_ms < duration.wall_ms
    assert set(duration.to_json()) == {"wall_ms", "cpu_ms"}
