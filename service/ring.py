"""The memory that the web process shares with one infer worker: slots for the tensors of requests and of their answers.

A ring is a memfd, sealed so that neither end can shrink it under the other, and two eventfds. The web process puts a
request into a free slot, notes the slot in the next entry, and adds to the first eventfd how many there are; the worker
answers in the order of the entries, each in the slot of its request, and adds to the second how many it has answered.
Tensors start at multiples of 64 bytes, where kernels may load whole vectors.

The worker can write anywhere in its ring at any time. So the web process reads each number of an answer once, checks it
against the Signature, and copies the data out before it looks at them.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from service.nouns import Signature, TensorSpec

ALIGNMENT = 64
MAX_SLOTS = 64
# The largest ring; memory is taken only where something was written.
MAX_BYTES = 256 << 20
# What a slot has for a tensor with symbols in its shape, unless that is smaller at its largest.
SYMBOLIC_BYTES = 4 << 20
# A Problem has this much room at least.
PROBLEM_BYTES = 16 << 10

# What became of a request: outputs; a Problem as JSON; its deadline was over; its outputs have no room.
ANSWERED, FAILED, EXPIRED, NO_ROOM = range(4)

# The dtypes that cross processes, by numpy's name.
ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

_ENTRY_BYTES = 4
_TOLD = struct.Struct("<4Q")


class RingError(Exception):
    """The worker wrote what is no answer."""


# What is made for each request is not frozen: that would be most of the time of making it.
@dataclass(slots=True)
class RawTensor:
    """Numbers on their way to or from a worker: numpy's dtype name, shape, C-ordered little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


@dataclass(slots=True)
class Request:
    """What a slot asks for: the shapes of the inputs, and the ns of the monotonic clock at which it is void, or 0."""

    shapes: tuple[tuple[int, ...], ...]
    deadline_ns: int


@dataclass(slots=True)
class Answer:
    """What a slot tells: outputs, or the JSON of a Problem; the ns of the run, and how many requests it was for."""

    status: int
    outputs: list[RawTensor]
    problem: bytes
    run_ns: int
    batch: int


def aligned(size: int) -> int:
    """`size` in bytes, rounded up to where the next tensor may start."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Layout:
    """Where everything stands in the ring of a Signature; both ends work it out by themselves.

    A slot has the request's head (deadline, sizes), the answer's head (status, ns, batch, bytes of a Problem, sizes),
    the inputs and the outputs.
    """

    def __init__(self, signature: Signature) -> None:
        self.inputs, self.outputs = signature.inputs, signature.outputs
        self.asked = struct.Struct(f"<{1 + sum(len(spec.shape) for spec in self.inputs)}Q")
        self.sizes = struct.Struct(f"<{sum(len(spec.shape) for spec in self.outputs)}Q")
        # Where no shape has a symbol, all is known beforehand: the sizes of a request and of an answer, the shapes, and
        # of each output where it stands.
        self.fixed_inputs, self.fixed_outputs = _fixed(self.inputs), _fixed(self.outputs)
        self.input_bytes = _room(self.inputs, signature)
        self.output_bytes = max(_room(self.outputs, signature), PROBLEM_BYTES)
        self.told_at = aligned(self.asked.size)
        self.inputs_at = self.told_at + aligned(_TOLD.size + self.sizes.size)
        self.outputs_at = self.inputs_at + self.input_bytes
        self.slot_bytes = self.outputs_at + self.output_bytes
        self.first_slot = aligned(MAX_SLOTS * _ENTRY_BYTES)
        # None at all where one request alone would take too much: such a model is asked over its socket.
        self.slots = min(MAX_SLOTS, MAX_BYTES // self.slot_bytes)
        self.total_bytes = self.first_slot + self.slots * self.slot_bytes


def _room(specs: Sequence[TensorSpec], signature: Signature) -> int:
    return max(sum(_largest(spec, signature) for spec in specs), ALIGNMENT)


def _largest(spec: TensorSpec, signature: Signature) -> int:
    sizes = [size if isinstance(size, int) else signature.symbols.get(size, (0, None))[1] for size in spec.shape]
    known = [size for size in sizes if size is not None]
    whole = aligned(math.prod(known) * ITEM_BYTES[spec.dtype])
    is_fixed = all(isinstance(size, int) for size in spec.shape)
    return whole if is_fixed else SYMBOLIC_BYTES if len(known) < len(sizes) else min(whole, SYMBOLIC_BYTES)


def create_descriptors(layout: Layout) -> tuple[int, int, int]:
    """The memfd and the eventfds of requests and answers, of a new ring. Raises OSError."""
    memory = os.memfd_create("relaxd-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, layout.total_bytes)
    # A shrunk memfd would be a SIGBUS for the web process.
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
    return memory, os.eventfd(0, flags), os.eventfd(0, flags)


class Ring:
    """One end of a ring; which methods make sense at which end, they say."""

    def __init__(self, layout: Layout, descriptors: Sequence[int]) -> None:
        """Opens the ring of `create_descriptors`, which belong to it from now on. Raises OSError, ValueError."""
        self.layout = layout
        memory, self.requests, self.answers = descriptors
        try:
            self._map = mmap.mmap(memory, layout.total_bytes)
        finally:
            os.close(memory)
        self._memory = memoryview(self._map)
        self._entries = self._memory[: MAX_SLOTS * _ENTRY_BYTES].cast("I")

    def close(self) -> None:
        """Gives up this end; nothing may look into its memory any more. Raises BufferError."""
        for descriptor in (self.requests, self.answers):
            os.close(descriptor)
        self._entries.release()
        self._memory.release()
        self._map.close()

    def fits(self, inputs: Sequence[RawTensor]) -> bool:
        """Web: whether inputs have room in a slot."""
        if self.layout.fixed_inputs is not None:
            return True
        total = 0
        for tensor in inputs:
            total += aligned(len(tensor.data))
        return total <= self.layout.input_bytes

    def ask(self, number: int, slot: int, inputs: Sequence[RawTensor], deadline_ns: int) -> None:
        """Web: puts the request with that running number into a free slot; the worker is told of it by `ring_for`."""
        layout = self.layout
        base = layout.first_slot + slot * layout.slot_bytes
        fixed = layout.fixed_inputs
        sizes = [size for tensor in inputs for size in tensor.shape] if fixed is None else fixed.sizes
        layout.asked.pack_into(self._memory, base, deadline_ns, *sizes)
        at = base + layout.inputs_at
        for tensor in inputs:
            size = len(tensor.data)
            self._memory[at : at + size] = tensor.data
            at += aligned(size)
        self._entries[number % layout.slots] = slot

    def ring_for(self, count: int) -> None:
        """Web: tells the worker of so many requests more."""
        # It is full only where the worker has filled it: then the request waits for its deadline.
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self.requests, count)

    def asked(self, number: int) -> tuple[int, Request]:
        """Worker: the slot of the request with that running number, and its head."""
        slot = self._entries[number % self.layout.slots]
        head = self.layout.asked.unpack_from(self._memory, self.layout.first_slot + slot * self.layout.slot_bytes)
        fixed = self.layout.fixed_inputs
        if fixed is not None and fixed.sizes == head[1:]:
            return slot, Request(fixed.shapes, head[0])
        return slot, Request(tuple(_shapes(self.layout.inputs, head[1:])), head[0])

    def memory_of_inputs(self, slot: int) -> memoryview:
        """Worker: where the inputs of a slot start, each at the next aligned byte."""
        at = self.layout.first_slot + slot * self.layout.slot_bytes + self.layout.inputs_at
        return self._memory[at : at + self.layout.input_bytes]

    def memory_of_outputs(self, slot: int) -> memoryview:
        """Worker: where outputs, or the JSON of a Problem, are to be written before `tell`."""
        at = self.layout.first_slot + slot * self.layout.slot_bytes + self.layout.outputs_at
        return self._memory[at : at + self.layout.output_bytes]

    def tell(
        self, slot: int, status: int, *, sizes: Sequence[int] = (), problem: int = 0, run_ns: int = 0, batch: int = 1
    ) -> None:
        """Worker: the head of an answer; `sizes` are those of all outputs, `problem` has so many bytes."""
        at = self.layout.first_slot + slot * self.layout.slot_bytes + self.layout.told_at
        if status == ANSWERED:
            self.layout.sizes.pack_into(self._memory, at + _TOLD.size, *sizes)
        _TOLD.pack_into(self._memory, at, status, run_ns, batch, problem)

    def told(self, slot: int) -> Answer:
        """Web: a checked copy of the answer in a slot. Raises RingError."""
        layout = self.layout
        at = layout.first_slot + slot * layout.slot_bytes
        status, run_ns, batch, problem = _TOLD.unpack_from(self._memory, at + layout.told_at)
        outputs_at = at + layout.outputs_at
        if status == FAILED and problem <= layout.output_bytes:
            return Answer(status, [], bytes(self._memory[outputs_at : outputs_at + problem]), run_ns, batch)
        if status in (EXPIRED, NO_ROOM):
            return Answer(status, [], b"", run_ns, batch)
        if status != ANSWERED:
            raise RingError(f"an answer of status {status}")
        sizes = layout.sizes.unpack_from(self._memory, at + layout.told_at + _TOLD.size)
        fixed = layout.fixed_outputs
        if fixed is not None and fixed.sizes == sizes:
            memory = self._memory
            known = [
                RawTensor(dtype, shape, bytes(memory[outputs_at + start : outputs_at + end]))
                for dtype, shape, start, end in fixed.places
            ]
            return Answer(status, known, b"", run_ns, batch)
        outputs = []
        for spec, shape in zip(layout.outputs, _shapes(layout.outputs, sizes), strict=True):
            if any(isinstance(want, int) and got != want for want, got in zip(spec.shape, shape, strict=True)):
                raise RingError(f"an output of shape {shape} for {list(spec.shape)}")
            size = math.prod(shape) * ITEM_BYTES[spec.dtype]
            if outputs_at + size > at + layout.slot_bytes:
                raise RingError(f"an output of {size} bytes, which have no room")
            outputs.append(RawTensor(spec.dtype, shape, bytes(self._memory[outputs_at : outputs_at + size])))
            outputs_at += aligned(size)
        return Answer(status, outputs, b"", run_ns, batch)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Of tensors whose shapes have no symbol: all sizes, the shapes, and of each dtype, shape, first and end byte."""

    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    places: tuple[tuple[str, tuple[int, ...], int, int], ...]


def _fixed(specs: Sequence[TensorSpec]) -> _Fixed | None:
    places, at = [], 0
    for spec in specs:
        shape = tuple(size for size in spec.shape if isinstance(size, int))
        if len(shape) != len(spec.shape):
            return None
        size = math.prod(shape) * ITEM_BYTES[spec.dtype]
        places.append((spec.dtype, shape, at, at + size))
        at += aligned(size)
    shapes = tuple(place[1] for place in places)
    return _Fixed(tuple(size for shape in shapes for size in shape), shapes, tuple(places))


def _shapes(specs: Sequence[TensorSpec], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    shapes, at = [], 0
    for spec in specs:
        rank = len(spec.shape)
        shapes.append(tuple(sizes[at : at + rank]))
        at += rank
    return shapes


def signals(descriptor: int) -> int:
    """How often one end has rung an eventfd since this was asked last."""
    try:
        return os.eventfd_read(descriptor)
    except BlockingIOError:
        return 0
