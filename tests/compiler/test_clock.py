"""Durations add up."""

from __future__ import annotations

import time

import pytest

from service.compiler.clock import Duration, check
from service.errors import DeadlineExceeded
from service.nouns import Limits


def test_pieces_add_up_and_sleep_costs_no_cpu() -> None:
    duration = Duration()
    for _ in range(2):
        with duration.measure():
            time.sleep(0.01)
    assert duration.wall_ms >= 20
    assert duration.cpu_ms < duration.wall_ms
    assert set(duration.to_json()) == {"wall_ms", "cpu_ms"}


@pytest.mark.parametrize(("wall_ms", "cpu_ms", "name"), [(2001, 0, "limit_s"), (0, 3001, "limit_cpu_s")])
def test_a_phase_that_took_more_than_its_limit_is_a_problem(wall_ms, cpu_ms, name):
    limits = Limits(build_s=2, build_cpu_s=3)
    check("build", Duration(2000, 3000), limits, step=4)
    with pytest.raises(DeadlineExceeded, match="the build took more than the limit of") as caught:
        check("build", Duration(wall_ms, cpu_ms), limits, step=4)
    extensions = caught.value.extensions
    assert (extensions["phase"], extensions["step"]) == ("build", 4)
    assert extensions[name] == (2 if name == "limit_s" else 3)
