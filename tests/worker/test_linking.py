"""The link role: from object files to a library, from a library to assembly, and clear words when that fails."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import socket
import subprocess

import pytest

from service.errors import BuildFailed, InternalError, Problem, WorkerCrashed
from service.link_workers import disassemble, link
from service.nouns import Limits
from service.pool import Pool
from service.wire import Frame, FrameLimits, receive_frame, send_frame
from service.work_folder import LIBRARY, PROGRAM_FILES, work_folder
from service.worker.linking import work

ASSEMBLY = ".globl answer\n.type answer, @function\nanswer:\n    mov $42, %eax\n    ret\n"


@pytest.fixture
def object_file(tmp_path):
    """An object file with a function."""
    subprocess.run(["as", "-o", tmp_path / "o", "-"], input=ASSEMBLY, text=True, check=True)
    return tmp_path / "o"


def in_worker(tmp_path, content: bytes, scenario, limits: Limits | None = None):
    """Runs ``scenario(pool, folder, limits)`` in a work folder with ``lib0.o``; its result."""
    (tmp_path / "lib0.o").write_bytes(content)

    async def inner():
        pool = Pool()
        try:
            with work_folder(tmp_path, {"lib0.o": tmp_path / "lib0.o"}, (LIBRARY, *PROGRAM_FILES)) as folder:
                return await scenario(pool, folder, limits or Limits())
        finally:
            await pool.close()

    return asyncio.run(inner())


def test_the_library_can_be_loaded_is_the_same_each_time_and_can_be_read(object_file, tmp_path):
    async def scenario(pool, folder, limits):
        libraries = []
        for _ in range(2):
            await link(pool, folder, ["lib0.o"], LIBRARY, limits)
            libraries.append((folder / LIBRARY).read_bytes())
        (tmp_path / "kept.so").write_bytes(libraries[0])
        assert libraries[0] == libraries[1]
        return await disassemble(pool, tmp_path, folder / LIBRARY, limits)

    text = in_worker(tmp_path, object_file.read_bytes(), scenario)
    assert ctypes.CDLL(str(tmp_path / "kept.so")).answer() == 42
    assert "<answer>:" in text
    assert "ret" in text


@pytest.mark.parametrize("content", [b"", b"not an object file", b"\x7fELF" + bytes(60)])
def test_what_is_no_object_file_is_said(tmp_path, content):
    async def scenario(pool, folder, limits):
        with pytest.raises(Problem) as raised:
            await link(pool, folder, ["lib0.o"] if content else ["missing.o"], LIBRARY, limits)
        return raised.value

    problem = in_worker(tmp_path, content, scenario)
    assert isinstance(problem, (BuildFailed, WorkerCrashed))
    if isinstance(problem, BuildFailed):
        assert "`ld` failed" in problem.detail


def test_a_library_over_its_limit_is_not_made(object_file, tmp_path):
    async def scenario(pool, folder, limits):
        with pytest.raises(BuildFailed, match="too large"):
            await link(pool, folder, ["lib0.o"], LIBRARY, limits)

    limits = dataclasses.replace(Limits(), library_bytes=1000)
    in_worker(tmp_path, object_file.read_bytes(), scenario, limits)


def test_a_machine_without_a_linker_is_said(object_file, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    async def scenario(pool, folder, limits):
        with pytest.raises(BuildFailed, match="not installed"):
            await link(pool, folder, ["lib0.o"], LIBRARY, limits)

    in_worker(tmp_path, object_file.read_bytes(), scenario)


def test_a_worker_that_is_asked_nothing_ends():
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        work(theirs, [])


def test_an_answer_that_makes_no_sense_is_no_library(tmp_path):
    """A link worker that was taken over may say what it likes: nothing but its exit code counts."""

    class Liar:
        exited = None

        async def fork(self, *_):
            return self

        async def send(self, _):
            return None

        async def receive(self):
            return Frame({"event": "linked"})

        async def end(self):
            return -9

    liar = Liar()
    pool = type("P", (Pool,), {"fork": lambda self, *_: liar.fork()})()
    with pytest.raises(InternalError):
        asyncio.run(link(pool, tmp_path, ["lib0.o"], LIBRARY, Limits()))


def test_a_program_that_is_missing_is_told_by_a_frame(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_frame(ours, Frame({"objects": ["a.o"], "output": "b"}))
        work(theirs, [])
        answer = receive_frame(ours, FrameLimits())
    assert answer is not None
    assert answer.body["event"] == "failed"
    assert os.listdir(tmp_path) == []
