"""The compile role: one Compilation a process."""

from __future__ import annotations

import json
import socket
import warnings
from pathlib import Path

import torch

from service.compiler import corrections
from service.compiler.compile import Compiler
from service.compiler.expanding import expand_step
from service.compiler.importers import find_importer
from service.compiler.inspecting import decomposable_operators, inspect_model, supported_operators
from service.compiler.recipes import load_catalogue
from service.compiler.target import toolchain
from service.errors import InternalError, JsonObject, MemoryLimitExceeded, Problem, problem_from_json
from service.kernel_store import MAX_KERNEL_BYTES
from service.nouns import CompileJob, ModelFormat
from service.wire import Frame, FrameLimits, receive_frame, send_frame
from service.worker.bisecting import bisect

torch.set_num_threads(1)
# Raised by torch's own code for each model; the operator who reads the log can do nothing about it.
warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)`", category=FutureWarning)
warnings.filterwarnings("ignore", message=r"`torch\.jit", category=DeprecationWarning)


def announcement() -> JsonObject:
    """What the web process must know: the Catalogue, the operators, what the id of a Compilation depends on."""
    # Imported here, once: a worker would pay for it each time, and its sandbox does not let it read our folder.
    for model_format in ModelFormat:
        find_importer(model_format)
    find_importer(ModelFormat.FX, "course")
    corrections.converters()
    corrections.decompositions()
    corrections.kept()
    operators = {"supported": supported_operators(), "decomposed": decomposable_operators()}
    return {"catalogue": load_catalogue().to_json(), "toolchain": toolchain(), "operators": operators}


def work(peer: socket.socket, _descriptors: list[int]) -> None:
    """Receives jobs, to compile, to look at (``"op": "inspect"``) or to bisect, and sends their events.

    After the first it returns, unless a job says that others may follow.
    """
    compiler = _compiler(peer)
    while (frame := receive_frame(peer, FrameLimits())) is not None:
        job = CompileJob.from_json(frame.body["job"])
        try:
            if frame.body.get("op") == "inspect":
                send_frame(peer, Frame({"event": "inspected", "report": inspect_model(job)}))
            elif frame.body.get("op") == "expand":
                inner = json.dumps(expand_step(job, int(frame.body["step"]))).encode()
                send_frame(peer, Frame({"event": "expanded"}, (inner,)))
            elif frame.body.get("op") == "bisect":
                bisect(frame.body, job, lambda body, blobs: send_frame(peer, Frame(body, blobs)))
            else:
                compiler.compile(job)
        except (BrokenPipeError, ConnectionResetError):
            raise
        except BaseException as error:  # noqa: BLE001  the last resort: whatever it is, the caller gets a Problem
            send_frame(peer, Frame({"event": "failed", "problem": _problem(error, job).to_json()}))
        if not job.keep:
            return


def _compiler(peer: socket.socket) -> Compiler:
    def emit(body: JsonObject, blobs: tuple[bytes, ...]) -> None:
        send_frame(peer, Frame(body, blobs))

    def link(output: str, objects: list[str]) -> None:
        # This process may start no other: the web process lends one that may.
        names = [Path(name).name for name in objects]
        send_frame(peer, Frame({"event": "link", "objects": names, "output": Path(output).name}))
        answer = receive_frame(peer, FrameLimits())
        if answer is None:
            raise BrokenPipeError
        if answer.body["event"] == "failed":
            raise problem_from_json(answer.body["problem"])

    return Compiler(emit, link, _KernelsOfServer(peer))


class _KernelsOfServer:
    """The kernels that the web process keeps for this caller."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer

    def find(self, keys: list[str]) -> dict[str, bytes]:
        send_frame(self._peer, Frame({"event": "kernels", "keys": keys}))
        answer = receive_frame(self._peer, FrameLimits())
        if answer is None:
            raise BrokenPipeError
        return {str(key): bytes(blob) for key, blob in zip(answer.body["keys"], answer.blobs, strict=True)}

    def keep(self, key: str, made: bytes) -> None:
        if len(made) <= MAX_KERNEL_BYTES:
            send_frame(self._peer, Frame({"event": "kernel", "key": key}, (made,)))


def _problem(error: BaseException, job: CompileJob) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, MemoryError):
        limit = job.limits.compile_memory_bytes
        return MemoryLimitExceeded(
            f"The compilation needed more than {limit >> 20} MiB of memory. Send a smaller model or batch, "
            "or let the operator raise RELAXD_COMPILE_MEMORY_BYTES.",
            limit_bytes=limit,
        )
    return InternalError(f"The compile worker met an unforeseen {type(error).__name__}: {str(error)[:500]}")
