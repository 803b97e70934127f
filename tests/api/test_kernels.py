"""Kernels go from one Compilation to the next: of the same caller, on a server of its own."""

from __future__ import annotations

import re

from tests.conftest import Server


def kernels(document):
    details = next(result for result in document["results"] if result["stage"] == "llvm")["details"]
    return details["known_kernels"], details["kernels"]


def counted(server: Server):
    text = server.http.get("/metrics").text
    return {
        outcome: float(count) for outcome, count in re.findall(r'relaxd_kernels_total\{outcome="(\w+)"\} (\S+)', text)
    }


def test_a_second_compilation_of_the_same_model_makes_no_kernel(new_server, model_file):
    server = new_server()
    first = server.compile(model_file("mlp"), {}).json()
    assert kernels(first)[0] == 0
    other = server.compile(model_file("mlp"), {"verify": "every_step"}).json()
    assert other["id"] != first["id"]
    assert kernels(other) == (kernels(first)[1],) * 2
    assert other["artifact"]["library_sha256"] == first["artifact"]["library_sha256"]
    for stage in ("tir", "llvm", "asm"):
        texts = [server.http.get(f"/ir/{stage}", params={"id": each["id"]}).text for each in (first, other)]
        assert texts[0] == texts[1]
        assert len(texts[0]) > 100
    assert counted(server) == {"known": kernels(other)[0], "made": kernels(first)[1]}
    server.stop()
    again = new_server()
    third = again.compile(model_file("mlp"), {"special_values": "report"}).json()
    assert kernels(third)[0] == kernels(third)[1]


def test_damaged_kernels_are_made_anew(new_server, model_file):
    server = new_server()
    first = server.compile(model_file("mlp"), {}).json()
    damaged = list((server.data / "kernels").glob("*/" + "?" * 64))
    assert len(damaged) == kernels(first)[1]
    for file in damaged:
        file.write_bytes(file.read_bytes()[:-9] + bytes(9))
    second = server.compile(model_file("mlp"), {"verify": "every_step"}).json()
    assert kernels(second)[0] == 0
    assert second["artifact"]["library_sha256"] == first["artifact"]["library_sha256"]
