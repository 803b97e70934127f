"""The link role: from object files to a library, and clear words when that fails."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import threading

import pytest

from service.errors import BuildFailed
from service.wire import Frame, FrameLimits, receive_frame, send_frame
from service.worker.linking import link, work

ASSEMBLY = ".globl answer\n.type answer, @function\nanswer:\n    mov $42, %eax\n    ret\n"


@pytest.fixture
def objects(tmp_path, monkeypatch):
    """An object file with a function, in the current folder."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["as", "-o", "lib0.o", "-"], input=ASSEMBLY, text=True, check=True)
    return ["lib0.o"]


def test_the_library_can_be_loaded_and_is_the_same_each_time(objects, tmp_path):
    link(objects, "model.so")
    assert ctypes.CDLL(str(tmp_path / "model.so")).answer() == 42
    first = (tmp_path / "model.so").read_bytes()
    link(objects, "model.so")
    assert (tmp_path / "model.so").read_bytes() == first


@pytest.mark.parametrize("content", [b"", b"not an object file", b"\x7fELF" + bytes(60)])
def test_what_is_no_object_file_is_said(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib0.o").write_bytes(content)
    if content:
        with pytest.raises(BuildFailed, match="`ld` failed"):
            link(["lib0.o"], "model.so")
    else:
        with pytest.raises(BuildFailed):
            link(["missing.o"], "model.so")


def test_a_machine_without_a_linker_is_said(objects, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildFailed, match="not installed"):
        link(objects, "model.so")


def test_the_worker_answers_one_frame(objects):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=work, args=(theirs,))
        thread.start()
        send_frame(ours, Frame({"objects": objects, "output": "model.so"}))
        answer = receive_frame(ours, FrameLimits())
        thread.join()
    assert answer is not None
    assert answer.body == {"event": "linked"}
