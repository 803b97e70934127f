"""The shared memory of a worker: what goes in comes out, at aligned places, and neither end can hurt the other."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.nouns import Signature, TensorSpec
from service.ring import (
    ALIGNMENT,
    ANSWERED,
    EXPIRED,
    FAILED,
    ITEM_BYTES,
    MAX_BYTES,
    MAX_SLOTS,
    Layout,
    RawTensor,
    Ring,
    RingError,
    aligned,
    create_descriptors,
    signals,
)

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
SPECS = st.lists(st.tuples(SHAPES, st.sampled_from(sorted(ITEM_BYTES))), max_size=4)


def signature(inputs, outputs, symbols=None) -> Signature:
    def specs(given, letter):
        return tuple(TensorSpec(f"{letter}{i}", tuple(shape), dtype) for i, (shape, dtype) in enumerate(given))

    return Signature(specs(inputs, "x"), specs(outputs, "y"), symbols or {})


def both_ends(of: Signature) -> tuple[Ring, Ring]:
    layout = Layout(of)
    memory, *doorbells = create_descriptors(layout)
    return Ring(layout, [os.dup(memory), *doorbells]), Ring(Layout(of), [memory, *map(os.dup, doorbells)])


@given(SPECS, SPECS, st.integers(0, 200))
def test_what_is_asked_and_told_arrives_as_it_was_sent(inputs, outputs, rounds_before):
    web, worker = both_ends(signature(inputs, outputs))
    try:
        generator = np.random.default_rng(rounds_before)
        asked = [drawn(generator, *each) for each in inputs]
        slot = rounds_before % web.layout.slots
        web.ask(rounds_before, slot, asked, 77)
        web.ring_for(1)
        assert signals(worker.requests) == 1
        assert signals(worker.requests) == 0
        got, request = worker.asked(rounds_before)
        assert (got, request.shapes, request.deadline_ns) == (slot, tuple(tensor.shape for tensor in asked), 77)
        memory, at = worker.memory_of_inputs(slot), 0
        for tensor in asked:
            assert at % ALIGNMENT == 0
            assert bytes(memory[at : at + len(tensor.data)]) == bytes(tensor.data)
            at += aligned(len(tensor.data))
        answer = [drawn(generator, *each) for each in outputs]
        out, at = worker.memory_of_outputs(slot), 0
        for tensor in answer:
            out[at : at + len(tensor.data)] = tensor.data
            at += aligned(len(tensor.data))
        worker.tell(slot, ANSWERED, sizes=[size for tensor in answer for size in tensor.shape], run_ns=5, batch=2)
        told = web.told(slot)
        assert (told.outputs, told.run_ns, told.batch) == (answer, 5, 2)
        memory.release()
        out.release()
    finally:
        web.close()
        worker.close()


def drawn(generator, shape, dtype) -> RawTensor:
    size = int(np.prod(shape, dtype=int)) * ITEM_BYTES[dtype]
    return RawTensor(dtype, tuple(shape), generator.bytes(size))


def test_slots_start_where_vectors_may_be_loaded():
    for bound in (1, 3, 100, 10**6):
        layout = Layout(signature([(("n", 3), "int8"), ((5,), "float64")], [(("n",), "bool")], {"n": (1, bound)}))
        assert all(
            each % ALIGNMENT == 0
            for each in (layout.first_slot, layout.slot_bytes, layout.inputs_at, layout.outputs_at)
        )


def test_a_ring_has_its_limits():
    assert Layout(signature([((8,), "float32")], [])).slots == MAX_SLOTS
    unbounded = Layout(signature([(("n", 8), "float32")], [(("n",), "float32")]))
    assert 2 <= unbounded.slots <= MAX_SLOTS
    assert unbounded.total_bytes <= MAX_BYTES + unbounded.first_slot
    huge = Layout(signature([((1 << 30,), "float32")], []))
    assert huge.slots == 0
    assert huge.total_bytes < 1 << 20


def test_the_memory_can_be_shrunk_by_nobody():
    memory, requests, answers = create_descriptors(Layout(signature([((8,), "float32")], [])))
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(memory, size)
    for descriptor in (memory, requests, answers):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("status", "sizes", "problem"),
    [(7, [], 0), (2**64 - 1, [], 0), (ANSWERED, [3, 2], 0), (ANSWERED, [2, 2**63], 0), (FAILED, [], 2**63)],
)
def test_an_answer_that_does_not_fit_the_signature_is_refused(status, sizes, problem):
    web, worker = both_ends(signature([], [((2, "n"), "float32")], {"n": (1, 4)}))
    if sizes:
        worker.tell(0, ANSWERED, sizes=sizes)
    worker.tell(0, status, sizes=sizes or [0, 0], problem=problem)
    with pytest.raises(RingError):
        web.told(0)
    worker.tell(0, EXPIRED)
    assert web.told(0).outputs == []
    web.close()
    worker.close()


def test_a_doorbell_that_is_full_never_blocks():
    web, worker = both_ends(signature([((1,), "float32")], []))
    os.eventfd_write(worker.requests, 2**64 - 2)
    web.ask(0, 0, [RawTensor("float32", (1,), bytes(4))], 0)
    web.ring_for(1)
    web.close()
    worker.close()
