"""More clients than a server can serve, for a few seconds; `bench/overload.py` is the same for as long as one likes."""

from __future__ import annotations

from bench.overload import MIX, measure


def test_a_server_with_too_many_clients_refuses_and_goes_on(tmp_path, model_file):
    figures = measure(6.0, 80, tmp_path, model_file("mlp").read_bytes(), times=1)
    statuses = {answer.rpartition(" ")[2] for answer in figures["answers"]}
    assert statuses <= {"200", "201", "202", "404", "429", "503"}, figures["answers"]
    assert {answer.rpartition(" ")[0] for answer in figures["answers"]} >= set(MIX) - {"half open", "slow body"}
    assert figures["health_ms"]["count"] > 0
    assert figures["health_probes_unanswered"] == 0
    memory = figures["memory_mb"]
    # Two compile workers at a time and the queue's uploads: far from what 80 unbounded compilations would take.
    assert memory["peak"] < sum(memory["idle"][0].values()) + 2500
    assert memory["idle_change"][0] < 0.05, memory
