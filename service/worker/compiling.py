"""The compile role: one Compilation a process."""

from __future__ import annotations

import socket
import warnings

import torch

from service.compiler.compile import compile_model
from service.compiler.importers import find_importer
from service.compiler.recipes import load_catalogue
from service.compiler.target import toolchain
from service.errors import InternalError, JsonObject, MemoryLimitExceeded, Problem
from service.nouns import CompileJob, ModelFormat
from service.wire import Frame, FrameLimits, receive_frame, send_frame

torch.set_num_threads(1)
# Raised by torch's own code for each model; the operator who reads the log can do nothing about it.
warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)`", category=FutureWarning)


def announcement() -> JsonObject:
    """What the web process must know: the Catalogue, and what the id of a Compilation depends on."""
    for model_format in ModelFormat:
        find_importer(model_format)  # imported here, once, and not again in each worker
    return {"catalogue": load_catalogue().to_json(), "toolchain": toolchain()}


def work(peer: socket.socket) -> None:
    """Receives one job, sends its events, and returns."""
    frame = receive_frame(peer, FrameLimits())
    if frame is None:
        return
    job = CompileJob.from_json(frame.body["job"])

    def emit(body: JsonObject, blobs: tuple[bytes, ...] = ()) -> None:
        send_frame(peer, Frame(body, blobs))

    try:
        compile_model(job, emit)
    except Problem as problem:
        send_frame(peer, Frame({"event": "failed", "problem": problem.to_json()}))
    except MemoryError:
        limit = job.limits.compile_memory_bytes
        excess = MemoryLimitExceeded(
            f"The compilation needed more than {limit >> 20} MiB of memory. Send a smaller model or batch, "
            "or let the operator raise RELAXD_COMPILE_MEMORY_BYTES.",
            limit_bytes=limit,
        )
        send_frame(peer, Frame({"event": "failed", "problem": excess.to_json()}))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # noqa: BLE001  the last resort: whatever it is, the caller gets a Problem
        unforeseen = InternalError(f"The compile worker met an unforeseen {type(error).__name__}: {str(error)[:500]}")
        send_frame(peer, Frame({"event": "failed", "problem": unforeseen.to_json()}))
