"""Requests are run as one only where rows are independent and it pays; each gets its own answer or its own error."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from service.errors import CheckFailed
from service.nouns import Signature, TensorSpec
from service.ring import ANSWERED, EXPIRED, FAILED, Layout, RawTensor, Ring, create_descriptors, signals
from service.runtime.batching import SIZES, Batching
from service.runtime.session import Session
from service.worker.draining import Drain

WEIGHT = np.random.default_rng(0).standard_normal((16, 4)).astype("float32")


def signature(symbols: dict[str, Any] | None = None, dtype: str = "float32", out: tuple = ("n", 4)) -> Signature:
    bounds = {"n": (1, None)} if symbols is None else symbols
    return Signature((TensorSpec("x", ("n", 16), dtype),), (TensorSpec("y", out, "float32"),), bounds)


def built(make) -> Session:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 16), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(builder, x)))
    return Session(relax.build(builder.get(), target="llvm"))


def product(_builder, x):
    return relax.op.matmul(x, relax.const(WEIGHT))


@pytest.fixture(scope="module")
def dense() -> Session:
    return built(product)


def test_rows_of_a_dense_layer_are_batched_as_far_as_that_pays(dense):
    found = Batching(dense, signature())
    assert found.rows in SIZES
    assert found.curve["1"] > found.curve[str(found.rows)]
    assert Batching(dense, signature({"n": (1, 4)})).rows in (2, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda builder, x: builder.emit(
            relax.op.subtract(product(builder, x), relax.op.mean(product(builder, x), axis=0))
        ),
        lambda builder, x: builder.emit(
            relax.op.divide(product(builder, x), relax.op.max(product(builder, x), axis=0))
        ),
        lambda builder, x: builder.emit(relax.op.nn.softmax(product(builder, x), axis=0)),
        lambda builder, x: builder.emit(relax.op.cumsum(product(builder, x), axis=0)),
        lambda builder, x: builder.emit(relax.op.flip(product(builder, x), axis=0)),
    ],
    ids=["mean", "maximum", "softmax", "sum of those before", "reversed"],
)
def test_rows_that_see_each_other_are_never_batched(make):
    assert Batching(built(make), signature()).rows == 1


@pytest.mark.parametrize(
    "of",
    [
        signature({"n": (2, 8)}),
        signature(dtype="int64"),
        signature(out=(4,)),
        signature(out=("n", "n")),
        signature(out=("2*n", 4)),
    ],
    ids=["two rows at least", "integers", "no batch in the output", "two symbols", "an expression"],
)
def test_some_signatures_are_not_tried(dense, of):
    found = Batching(dense, of)
    assert (found.rows, found.curve) == (1, {})


def test_what_an_earlier_worker_has_found_is_taken():
    assert Batching(None, signature(), 8).rows == 8  # type: ignore[arg-type]


class Ends:
    """Both ends of a ring in one process, and a Drain at the worker's."""

    def __init__(self, session: Any, rows: int, delay_ms: float = 0.0) -> None:
        layout = Layout(signature())
        memory, *doorbells = create_descriptors(layout)
        self.web = Ring(layout, [os.dup(memory), *doorbells])
        self.worker = Ring(layout, [memory, *map(os.dup, doorbells)])
        self.drain = Drain(self.worker, session, SimpleNamespace(rows=rows, inputs=layout.inputs), delay_ms)  # type: ignore[arg-type]
        self.asked = 0

    def ask(self, value: np.ndarray, deadline_ns: int = 0) -> None:
        self.web.ask(self.asked, self.asked, [RawTensor("float32", value.shape, value.tobytes())], deadline_ns)
        self.web.ring_for(1)
        self.asked += 1


def output(answer) -> np.ndarray:
    assert answer.status == ANSWERED, answer
    return np.frombuffer(answer.outputs[0].data, "float32").reshape(answer.outputs[0].shape)


@pytest.mark.parametrize("rows", [1, 8, 32])
def test_each_request_gets_its_own_rows_back(dense, rows):
    ends = Ends(dense, rows)
    values = [np.random.default_rng(i).standard_normal((1 + i % 3, 16)).astype("float32") for i in range(20)]
    for value in values:
        ends.ask(value)
    ends.drain.answer_all()
    assert signals(ends.web.answers) == 20
    batches = set()
    for slot, value in enumerate(values):
        answer = ends.web.told(slot)
        batches.add(answer.batch)
        np.testing.assert_allclose(output(answer), value @ WEIGHT, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(output(answer), dense.run([value])[0], rtol=1e-5, atol=1e-6)
    assert (max(batches) > 1) == (rows > 1)


def test_requests_too_many_for_a_batch_and_void_ones_are_answered_too(dense):
    ends = Ends(dense, 4)
    ends.ask(np.ones((9, 16), "float32"))
    ends.ask(np.ones((1, 16), "float32"), deadline_ns=1)
    ends.ask(np.ones((1, 16), "float32"), deadline_ns=time.monotonic_ns() + 10**12)
    ends.drain.answer_all()
    assert output(ends.web.told(0)).shape == (9, 4)
    assert output(ends.web.told(2)).shape == (1, 4)
    assert ends.web.told(1).status == EXPIRED


def test_an_error_stays_with_its_request():
    class Picky:
        """Refuses negative numbers."""

        def call(self, tensors):
            if (tensors[0].numpy() < 0).any():
                raise CheckFailed("No.", operator="sqrt")
            return [tvm.runtime.tensor(tensors[0].numpy()[:, :4])]

    ends = Ends(Picky(), 8)
    for number in (1, -1, 2, 3):
        ends.ask(np.full((1, 16), number, "float32"))
    ends.drain.answer_all()
    told = [ends.web.told(slot) for slot in range(4)]
    assert [answer.status for answer in told] == [ANSWERED, FAILED, ANSWERED, ANSWERED]
    assert [output(told[slot])[0, 0] for slot in (0, 2, 3)] == [1, 2, 3]
    assert b"check-failed" in told[1].problem


def test_a_batch_waits_for_more_only_where_it_is_told_to(dense):
    ends = Ends(dense, 4, delay_ms=20.0)
    begun = time.monotonic()
    ends.ask(np.ones((1, 16), "float32"))
    ends.drain.answer_all()
    assert time.monotonic() - begun >= 0.02
    for _ in range(4):
        ends.ask(np.ones((1, 16), "float32"))
    ends.drain.answer_all()
    assert ends.web.told(4).batch == 4
