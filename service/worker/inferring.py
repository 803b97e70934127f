"""The infer role: one Artifact a process, tvm without torch."""

from __future__ import annotations

import select
import socket

import numpy as np

from service.nouns import Signature
from service.ring import Layout, Ring
from service.runtime.batching import Batching
from service.runtime.machine_peak import measure_peak
from service.runtime.profile import profile
from service.runtime.session import Array, Session
from service.runtime.threads import allow_threads
from service.wire import Frame, FrameLimits, receive_frame, send_frame
from service.worker.draining import Drain, as_problem


def work(peer: socket.socket, descriptors: list[int]) -> None:
    """Receives ``{"op": "load"}``, then answers each ``run`` and ``profile`` until the peer closes.

    With `descriptors`, those of a ring, also what comes through that.
    """
    limits = FrameLimits()
    session: Session | None = None
    drain: Drain | None = None
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if drain is not None and descriptor != peer.fileno():
                drain.answer_all()
                continue
            frame = receive_frame(peer, limits)
            if frame is None:
                return
            try:
                if session is None:
                    session = Session(frame.body["library_path"])
                    allow_threads(session.threads)
                    answer = Frame({"event": "ready"})
                    if descriptors:
                        drain, answer = _open_ring(session, frame, descriptors)
                        poll.register(descriptors[1], select.POLLIN)
                elif frame.body["op"] == "profile":
                    answer = _profile(session, frame)
                else:
                    answer = _run(session, frame)
            except Exception as error:  # noqa: BLE001  the last resort: whatever it is, the caller gets a Problem
                answer = Frame({"event": "failed", "problem": as_problem(error).to_json()})
            send_frame(peer, answer)


def _open_ring(session: Session, frame: Frame, descriptors: list[int]) -> tuple[Drain, Frame]:
    signature = Signature.from_json(frame.body["signature"])
    batching = Batching(session, signature, frame.body["batch_rows"])
    drain = Drain(Ring(Layout(signature), descriptors), session, batching, float(frame.body["max_queue_delay_ms"]))
    return drain, Frame({"event": "ready", "batch_rows": batching.rows})


def _profile(session: Session, frame: Frame) -> Frame:
    generator = np.random.default_rng(0)
    inputs = [_drawn(generator, spec["shape"], spec["dtype"]) for spec in frame.body["inputs"]]
    measured = profile(session, inputs, int(frame.body["runs"]))
    return Frame({"event": "profiled", "profile": measured, "machine": measure_peak().to_json()})


def _drawn(generator: np.random.Generator, shape: list[int], dtype: str) -> Array:
    """Standard normal floats; zeros for all else, which are valid indices of any table."""
    kind = np.dtype(dtype)
    return generator.standard_normal(shape).astype(kind) if kind.kind in "fV" else np.zeros(shape, kind)


def _run(session: Session, frame: Frame) -> Frame:
    inputs = [
        np.frombuffer(blob, dtype=spec["dtype"]).reshape(spec["shape"])
        for spec, blob in zip(frame.body["inputs"], frame.blobs, strict=True)
    ]
    # Not ascontiguousarray, which makes a number without dimensions an array of one.
    outputs = [np.asarray(output, order="C") for output in session.run(inputs)]
    body = {
        "event": "result",
        "outputs": [{"dtype": output.dtype.name, "shape": list(output.shape)} for output in outputs],
    }
    return Frame(body, tuple(output.tobytes() for output in outputs))
