"""`tune` of POST /compile with real workers: kernels measured, records shared, budget, progress, cancel, garbage."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile

import pytest

from service.compiler.rerun import job_of
from service.nouns import Limits
from service.tuning_database import FILE
from tests.api.test_events import read_events
from tests.conftest import end_server, start_server, wait_until

TUNE = {"tune": {"budget_s": 3}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of this file's own: its records decide what others would compile."""
    running = start_server(tmp_path_factory.mktemp("tuning") / "data")
    yield running
    end_server(running)


def kernels(document):
    (step,) = (step for step in document["steps"] if step["pass"] == "schedule")
    return {entry["function"]: entry for entry in step["details"]["kernels"]}


def parameters(document):
    return {name: (entry["kernel"], entry["parameters"]) for name, entry in kernels(document).items()}


@pytest.mark.parametrize("name", ["lecture", "small_conv"])
def test_a_tuned_model_teaches_those_that_come_after(server, model_file, name):
    started = server.compile(model_file(name), TUNE, "respond-async").json()
    assert started["tuning"]["budget_s"] == 3
    events = read_events(server, started["id"])
    told = [data for kind, _, data in events if kind == "tuning"]
    assert told
    assert all(each.keys() == started["tuning"].keys() for each in told)
    tuned = events[-1][2]
    assert tuned["state"] == "succeeded", tuned["problem"]
    assert tuned["verification"]["passed"]
    done = [entry for entry in kernels(tuned).values() if entry["tuned"]]
    assert done
    assert tuned["tuning"]["kernels"] >= tuned["tuning"]["kernels_done"] >= 1
    assert tuned["tuning"]["best_gain"] == max([1.0, *(entry["gain"] for entry in done)])
    assert {each["key"] for each in tuned["artifact"]["manifest"]["tuning"]} == {each["key"] for each in done}
    # Generous: the machine may be busy, and what has begun when the budget ends is ended.
    assert next(each for each in tuned["timings"] if each["phase"] == "tune")["wall_ms"] < 30_000
    again = server.compile(model_file(name), TUNE)
    assert (again.status_code, again.json()["id"]) == (200, tuned["id"])

    other = server.compile(model_file(name), {"verify": "every_step"}).json()
    assert other["id"] != tuned["id"]
    assert (other["state"], other["tuning"]) == ("succeeded", None)
    assert {entry["key"] for entry in kernels(other).values() if entry["tuned"]} == {each["key"] for each in done}
    assert parameters(other) == parameters(tuned)
    assert "tune" not in [each["phase"] for each in other["timings"]]


def test_the_archive_to_run_it_again_has_the_records(server, model_file, tmp_path):
    tuned = server.compile(model_file("lecture"), TUNE).json()
    archive = zipfile.ZipFile(io.BytesIO(server.http.get(f"/compile/{tuned['id']}/repro.zip").content))
    archive.extractall(tmp_path)
    assert json.loads((tmp_path / "request.json").read_text())["tune"] == {"budget_s": 3.0}
    job = job_of(tmp_path, str(tmp_path), Limits())
    assert job.tuning.budget_s is None
    assert [each.to_json() for each in job.tuning.records] == tuned["artifact"]["manifest"]["tuning"] != []


def test_garbage_in_the_database_changes_nothing(server, model_file):
    server.compile(model_file("lecture"), TUNE)
    with sqlite3.connect(server.data / FILE) as db:
        rows = db.execute("SELECT number, document FROM records").fetchall()
        for index, (number, document) in enumerate(rows):
            record = json.loads(document)
            bad = [{**record, "choice": {"rows": 4000, "vectors": 3, "group": 9}}, {**record, "choice": 5}, "]["][
                index % 3
            ]
            text = bad if isinstance(bad, str) else json.dumps(bad)
            db.execute("UPDATE records SET document = ? WHERE number = ?", (text, number))
    db.close()
    compiled = server.compile(model_file("lecture"), {"special_values": "report", "verify": "every_step"}).json()
    assert compiled["state"] == "succeeded"
    assert not any(entry["tuned"] for entry in kernels(compiled).values())
    # Measuring anew replaces it.
    healed = server.compile(model_file("lecture"), {"tune": {"budget_s": 4}}).json()
    assert any(entry["tuned"] for entry in kernels(healed).values())


def test_what_was_measured_before_a_cancel_and_a_power_cut_is_kept(new_server, model_file):
    server = new_server()
    started = server.compile(model_file("small_conv"), {"tune": {"budget_s": 120}}, "respond-async").json()

    def measured():
        now = server.http.get(f"/compile/{started['id']}").json()
        return now["state"] != "running" or now["tuning"]["kernels_done"] >= 1

    wait_until(lambda: server.http.get(f"/compile/{started['id']}").json()["state"] == "running")
    wait_until(measured, 60)
    server.http.delete(f"/compile/{started['id']}")
    server.kill()
    later = new_server().compile(model_file("small_conv")).json()
    assert any(entry["tuned"] for entry in kernels(later).values())


@pytest.mark.parametrize(
    ("request_part", "slug", "field"),
    [
        ({"tune": {"budget_s": 0}}, "invalid-field", "tune.budget_s"),
        ({"tune": {"budget_s": -1}}, "invalid-field", "tune.budget_s"),
        ({"tune": {"budget_s": "60"}}, "invalid-field", "tune.budget_s"),
        ({"tune": {"budget_s": 1e9}}, "invalid-field", "tune.budget_s"),
        ({"tune": {}}, "invalid-field", "tune.budget_s"),
        ({"tune": 60}, "invalid-field", "tune"),
        ({"tune": {"budget_s": 1, "trials": 5}}, "unknown-field", "tune.trials"),
        ({"tune": {"budget_s": 1}, "until": "schedule"}, "invalid-field", "tune"),
        ({"tune": {"budget_s": 1}, "passes": "generic"}, "invalid-field", "tune"),
    ],
    ids=str,
)
def test_what_cannot_be_tuned_is_refused_by_name(server, model_file, request_part, slug, field):
    answer = server.compile(model_file("mlp"), request_part)
    assert (answer.status_code, answer.json()["type"]) == (400, f"/problems/{slug}"), answer.text
    assert answer.json()["field"] == field
