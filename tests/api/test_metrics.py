"""GET /metrics on a real server, read by Prometheus's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def samples(server) -> dict[tuple[str, ...], float]:
    text = server.http.get("/metrics").text
    return {
        key(sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, *labels: str) -> tuple[str, ...]:
    return name, *sorted(labels)


def test_what_happened_is_counted(new_server, model_file):
    server = new_server()
    document = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
    server.compile(model_file("unsupported"), {"passes": []})
    name = document["signature"]["inputs"][0]["name"]
    for row in ([0.0] * 4, [0.0] * 4, [0.0] * 5):
        body = {"inputs": [{"name": name, "shape": [1, len(row)], "datatype": "FP32", "data": row}]}
        server.http.post(f"/v2/models/{document['id']}/infer", json=body)
    found = samples(server)
    assert found[key("relaxd_inferences_total", "1", document["id"], "succeeded")] == 2
    assert found[key("relaxd_inferences_total", "1", document["id"], "failed")] == 1
    assert found[key("relaxd_run_seconds_count", "1", document["id"])] == 2
    assert found[key("relaxd_run_seconds_sum", "1", document["id"])] > 0
    assert found[key("relaxd_queue_seconds_count", "1", document["id"])] == 2
    assert found[key("relaxd_batch_requests_sum", "1", document["id"])] == 2
    assert found[key("relaxd_waiting_inferences", document["id"])] == 0
    assert found[key("relaxd_replicas", document["id"])] == 1
    assert found[key("relaxd_loaded_bytes", document["id"])] > 0
    assert found[key("relaxd_compilations_total", "", "succeeded")] == 1
    assert found[key("relaxd_compilations_total", "failed", "import-failed")] == 1
    assert found[key("relaxd_problems_total", "import-failed")] == 1
    assert found[key("relaxd_compile_cpu_seconds_total", "build")] > 0
    assert found[key("relaxd_loaded_artifacts")] == 1
    assert found[key("relaxd_compilations_now", "running")] == 0
