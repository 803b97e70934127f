"""The records of kernels: by type of machine, the newest first to stay, durable."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading

from service.nouns import Target
from service.tuning import TuningRecord
from service.tuning_database import FILE, TuningDatabase, machine_type


def record(number: int, rows: int = 1) -> TuningRecord:
    return TuningRecord(f"dense-{number:016x}", {"rows": rows}, 1.5)


def test_records_outlive_the_server_and_belong_to_a_type_of_machine(tmp_path):
    database = TuningDatabase(tmp_path, 10)
    assert database.records("a") == ()
    database.keep("a", record(1))
    database.keep("b", record(2))
    database.keep("a", record(1, rows=7))
    assert TuningDatabase(tmp_path, 10).records("a") == (record(1, rows=7),)
    assert TuningDatabase(tmp_path, 10).records("b") == (record(2),)
    assert database.records("c") == ()


def test_their_number_is_bounded_and_the_oldest_go(tmp_path):
    database = TuningDatabase(tmp_path, 3)
    for number in range(4):
        database.keep("a", record(number))
    database.keep("a", record(1, rows=5))
    database.keep("b", record(9))
    assert database.records("a") == (record(3), record(1, rows=5))


def test_what_is_no_record_any_more_is_left_out(tmp_path):
    database = TuningDatabase(tmp_path, 10)
    database.keep("a", record(1))
    database.keep("a", record(2))
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("UPDATE records SET document = '{\"key\": 5}' WHERE key = ?", (record(1).key,))
    db.close()
    assert database.records("a") == (record(2),)


def test_a_file_that_is_no_database_costs_the_records_and_is_logged(tmp_path, caplog):
    (tmp_path / FILE).write_bytes(b"nothing of the kind" * 100)
    TuningDatabase(tmp_path, 10).keep("a", record(1))
    assert TuningDatabase(tmp_path, 10).records("a") == ()
    assert len(caplog.records) == 2


def test_threads_may_write_at_once(tmp_path):
    database = TuningDatabase(tmp_path, 100)
    threads = [threading.Thread(target=database.keep, args=("a", record(number))) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(each.key for each in database.records("a")) == {record(number).key for number in range(8)}


def test_the_type_of_machine_is_what_decides_the_speed():
    toolchain = {"tvm": "1", "cpu": "znver3", "cpu_features": "ab", "compiler": "x", "python": "3"}
    mine = machine_type(toolchain, Target())
    assert machine_type({**toolchain, "compiler": "y", "python": "4"}, Target()) == mine
    for name in ("tvm", "cpu", "cpu_features"):
        assert machine_type({**toolchain, name: "other"}, Target()) != mine
    assert machine_type(toolchain, dataclasses.replace(Target(), threads=2)) != mine
    assert machine_type(toolchain, dataclasses.replace(Target(), cpu="x86-64-v3")) != mine
