"""Answers what the web process has put into the ring: in order, and together where that pays."""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  makes numpy know bfloat16
import numpy as np

from service.errors import InternalError, Problem
from service.nouns import TensorSpec
from service.ring import ANSWERED, EXPIRED, FAILED, ITEM_BYTES, NO_ROOM, Request, Ring, aligned, signals
from service.runtime.batching import Batching
from service.runtime.session import Array, Session, aligned_copy, as_array, as_tensor

# Tensors over the inputs of a slot are kept for so many pairs of a slot and shapes.
MAX_KEPT = 512
# How long an answer may wait for those after it, where runs are shorter: waking the web process takes as long as one.
TOGETHER_NS = 50_000


class Drain:
    """The worker's end of a ring and the one virtual machine behind it. For one thread."""

    def __init__(self, ring: Ring, session: Session, batching: Batching, max_queue_delay_ms: float) -> None:
        """`max_queue_delay_ms` is how long a batch that is not full waits for more; 0 for not at all."""
        self._ring = ring
        self._session = session
        self._rows = batching.rows
        self._delay_s = max_queue_delay_ms / 1e3
        self._next = 0
        self._waiting: deque[tuple[int, Request]] = deque()
        # Answers that the web process was not told of, when it was told last, and how long the last runs took at most.
        self._untold = self._told_ns = self._slowest_ns = 0
        # Arrays over the outputs of a slot, where their shapes have no symbol.
        self._outputs: dict[int, list[Array]] = {}
        self._as_arrays = [as_array if spec.dtype == "bfloat16" else np.from_dlpack for spec in ring.layout.outputs]
        self._kept: dict[tuple[int, tuple[tuple[int, ...], ...]], tuple[list[Array], list[Any]]] = {}
        self._gathered = [
            aligned_copy(np.zeros((self._rows, *map(int, spec.shape[1:])), spec.dtype))
            for spec in batching.inputs
            if self._rows > 1
        ]
        self._poll = select.poll()
        self._poll.register(ring.requests, select.POLLIN)

    def answer_all(self) -> None:
        """Takes what has been asked, and answers until nothing is left; what comes meanwhile joins."""
        self._receive()
        while self._waiting:
            batch = self._next_batch()
            if len(batch) > 1:
                self._answer_together(batch)
            else:
                self._answer(*batch[0])
            self._receive()
        self._tell_of(0)

    def _tell_of(self, count: int) -> None:
        """Notes so many answers more, and tells of them: at once but where more wait that will not take long."""
        self._untold += count
        now = time.monotonic_ns()
        if self._untold and (not self._waiting or self._slowest_ns > TOGETHER_NS or now - self._told_ns > TOGETHER_NS):
            os.eventfd_write(self._ring.answers, self._untold)
            self._untold, self._told_ns = 0, now

    def _receive(self) -> None:
        for _ in range(signals(self._ring.requests)):
            self._waiting.append(self._ring.asked(self._next))
            self._next += 1

    def _next_batch(self) -> list[tuple[int, Request]]:
        if self._rows > 1 and self._delay_s:
            self._wait_for_more()
        batch = [self._waiting.popleft()]
        rows = _rows(batch[0][1])
        while self._rows > 1 and self._waiting and rows + _rows(self._waiting[0][1]) <= self._rows:
            batch.append(self._waiting.popleft())
            rows += _rows(batch[-1][1])
        return batch

    def _wait_for_more(self) -> None:
        end = time.monotonic() + self._delay_s
        while sum(_rows(request) for _, request in self._waiting) < self._rows:
            left = end - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1e3):
                return
            self._receive()

    def _answer(self, slot: int, request: Request) -> None:
        if _is_void(request):
            self._ring.tell(slot, EXPIRED)
        else:
            begun = time.perf_counter_ns()
            try:
                _, tensors = self._inputs(slot, request)
                results = self._call(tensors)
                self._write(slot, results, self._timed(begun), 1)
            except Exception as error:  # noqa: BLE001  the last resort: whatever it is, the caller gets a Problem
                self._fail(slot, error)
        self._tell_of(1)

    def _answer_together(self, batch: list[tuple[int, Request]]) -> None:
        begun = time.perf_counter_ns()
        bounds = [0]
        live = [(slot, request) for slot, request in batch if not _is_void(request)]
        try:
            for slot, request in live:
                arrays, _ = self._inputs(slot, request)
                start, end = bounds[-1], bounds[-1] + _rows(request)
                for whole, array in zip(self._gathered, arrays, strict=True):
                    whole[start:end] = array
                bounds.append(end)
            tensors = [as_tensor(whole[: bounds[-1]]) for whole in self._gathered]
            results = self._call(tensors)
        except Exception:  # noqa: BLE001  one request may be at fault: each is told what is its own
            for slot, request in batch:
                self._answer(slot, request)
            return
        run_ns = self._timed(begun)
        for slot, request in batch:
            if _is_void(request):
                self._ring.tell(slot, EXPIRED)
        for index, (slot, _) in enumerate(live):
            self._write(slot, [whole[bounds[index] : bounds[index + 1]] for whole in results], run_ns, len(live))
        self._tell_of(len(batch))

    def _call(self, tensors: list[Any]) -> list[Array]:
        results = self._session.call(tensors)
        if len(results) != len(self._as_arrays):
            raise InternalError("The model gave outputs that are not those of its Signature.")
        return [make(result) for make, result in zip(self._as_arrays, results, strict=True)]

    def _timed(self, begun_ns: int) -> int:
        run_ns = time.perf_counter_ns() - begun_ns
        self._slowest_ns = max(run_ns, self._slowest_ns * 7 // 8)
        return run_ns

    def _inputs(self, slot: int, request: Request) -> tuple[list[Array], list[Any]]:
        """Arrays and tensors that look into the slot: nothing is copied."""
        key = (slot, request.shapes)
        found = self._kept.get(key)
        if found is None:
            memory, at, arrays = self._ring.memory_of_inputs(slot), 0, []
            for spec, shape in zip(self._ring.layout.inputs, request.shapes, strict=True):
                arrays.append(_view(memory, at, spec, shape))
                at += aligned(arrays[-1].nbytes)
            found = arrays, [as_tensor(array) for array in arrays]
            if len(self._kept) >= MAX_KEPT or any(_is_copied(array) for array in arrays):
                return found
            self._kept[key] = found
        return found

    def _write(self, slot: int, results: Sequence[Array], run_ns: int, batch: int) -> None:
        fixed = self._ring.layout.fixed_outputs
        if fixed is not None:
            views = self._outputs_of(slot)
            if all(map(_is_alike, views, results)):
                for view, array in zip(views, results, strict=True):
                    view[...] = array
                return self._ring.tell(slot, ANSWERED, sizes=fixed.sizes, run_ns=run_ns, batch=batch)
        specs = self._ring.layout.outputs
        if [array.dtype.name for array in results] != [spec.dtype for spec in specs]:
            return self._fail(slot, InternalError("The model gave outputs that are not those of its Signature."))
        if sum(aligned(array.nbytes) for array in results) > self._ring.layout.output_bytes:
            return self._ring.tell(slot, NO_ROOM)
        memory, at, sizes = self._ring.memory_of_outputs(slot), 0, []
        for spec, array in zip(specs, results, strict=True):
            _view(memory, at, spec, array.shape)[...] = array
            at += aligned(array.nbytes)
            sizes += array.shape
        return self._ring.tell(slot, ANSWERED, sizes=sizes, run_ns=run_ns, batch=batch)

    def _outputs_of(self, slot: int) -> list[Array]:
        views = self._outputs.get(slot)
        if views is None:
            memory, at, views = self._ring.memory_of_outputs(slot), 0, []
            for spec in self._ring.layout.outputs:
                views.append(_view(memory, at, spec, [int(size) for size in spec.shape]))
                at += aligned(views[-1].nbytes)
            self._outputs[slot] = views
        return views

    def _fail(self, slot: int, error: Exception) -> None:
        text = json.dumps(as_problem(error).to_json()).encode()[: self._ring.layout.output_bytes]
        self._ring.memory_of_outputs(slot)[: len(text)] = text
        self._ring.tell(slot, FAILED, problem=len(text))


def as_problem(error: Exception) -> Problem:
    """What the caller is told: a Problem as it is, else that this was not foreseen."""
    if isinstance(error, Problem):
        return error
    return InternalError(f"The infer worker met an unforeseen {type(error).__name__}: {str(error)[:500]}")


def _is_void(request: Request) -> bool:
    return 0 < request.deadline_ns < time.monotonic_ns()


def _is_alike(view: Array, array: Array) -> bool:
    return view.shape == array.shape and view.dtype == array.dtype


def _rows(request: Request) -> int:
    return request.shapes[0][0]


def _view(memory: memoryview, at: int, spec: TensorSpec, shape: Sequence[int]) -> Array:
    size = math.prod(shape) * ITEM_BYTES[spec.dtype]
    array: Array = np.frombuffer(memory[at : at + size], spec.dtype).reshape(shape)
    return array


def _is_copied(array: Array) -> bool:
    """Whether its tensor is a copy of it: what is written to the slot later would not be seen."""
    return array.size == 0 or array.dtype.kind == "V"
