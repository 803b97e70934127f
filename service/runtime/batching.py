"""Whether requests for an artifact may be run as one, and how many rows at once pay: tried when it is loaded.

A symbolic batch says that the artifact takes any number of rows; it does not say that a row's result is its own (a
model may take the mean over its batch). So it is tried: a row must have the very same bits whatever stands beside it,
also huge numbers, infinity, and NaN, which all that is computed from it shows; and be what it is alone, but for
rounding, since kernels for one row may add in another order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from service.errors import Problem
from service.nouns import Signature, TensorSpec
from service.runtime.session import Array, Session

SIZES = (2, 4, 8, 16, 32)
# What together costs this much of alone, or less, is worth it.
GAIN = 0.75
# One row that takes longer keeps the cores busy by itself; trying it would hold up the load.
LONGEST_ROW_S = 2e-3
BUDGET_S = 0.03
REPETITIONS = 3


class Batching:
    """How many rows of different requests run as one: `rows`, 1 where they never do; `curve` is µs a row by size."""

    def __init__(self, session: Session, signature: Signature, rows: int | None = None) -> None:
        """Tries it out; or takes `rows`, as an earlier worker for the same artifact has found them."""
        self.inputs, self.outputs = signature.inputs, signature.outputs
        self.curve: dict[str, float] = {}
        self.rows = 1
        largest = _largest_batch(signature)
        if rows is not None:
            self.rows = rows
        elif largest > 1:
            try:
                self.rows = self._best(session, largest)
            except Problem:
                # A model that refuses drawn inputs, or a size within its range: nothing to learn from it.
                self.rows = 1

    def _best(self, session: Session, largest: int) -> int:
        # The first run is slower: memory is planned and pages are touched.
        session.run(self._drawn(1, 0))
        alone = _seconds(session, self._drawn(1, 0))
        self.curve["1"] = alone * 1e6
        if alone > LONGEST_ROW_S or not self._rows_are_independent(session, min(largest, 8)):
            return 1
        best, best_s, end = 1, alone * GAIN, time.perf_counter() + BUDGET_S
        for size in SIZES:
            if size > largest or time.perf_counter() > end:
                break
            seconds = _seconds(session, self._drawn(size, 0)) / size
            self.curve[str(size)] = seconds * 1e6
            if seconds <= best_s:
                best, best_s = size, seconds
        return best if self._rows_are_independent(session, best) else 1

    def _drawn(self, rows: int, seed: int) -> list[Array]:
        generator = np.random.default_rng(seed)
        shapes = [(rows, *(int(size) for size in spec.shape[1:])) for spec in self.inputs]
        return [
            generator.standard_normal(shape).astype(spec.dtype) for spec, shape in zip(self.inputs, shapes, strict=True)
        ]

    def _rows_are_independent(self, session: Session, rows: int) -> bool:
        plain = self._drawn(rows, 1)
        results = session.run(plain)
        if any(result.shape[:1] != (rows,) for result in results):
            return False
        for row in range(rows):
            alone = session.run([array[row : row + 1] for array in plain])
            if not all(_is_close(one, whole[row : row + 1]) for one, whole in zip(alone, results, strict=True)):
                return False
        for strange in (1e20, np.inf, np.nan):
            beside = [array.copy() for array in plain]
            for array in beside:
                array[rows // 2] *= strange
            others = [index for index in range(rows) if index != rows // 2]
            changed = session.run(beside)
            if any(one[others].tobytes() != two[others].tobytes() for one, two in zip(results, changed, strict=True)):
                return False
        return True


def _largest_batch(signature: Signature) -> int:
    """The largest size of a symbol that is the first dimension of everything, and the only symbol; 1 without one."""
    first = {spec.shape[0] if spec.shape else None for spec in (*signature.inputs, *signature.outputs)}
    (symbol,) = first if len(first) == 1 else (None,)
    every = (*signature.inputs, *signature.outputs)
    if not isinstance(symbol, str) or not symbol.isidentifier() or not all(map(_has_fixed_rows, every)):
        return 1
    low, high = signature.symbols.get(symbol, (0, None))
    # Only of floats can be told by NaN what reads them.
    floats = all(spec.dtype in ("float32", "float64") for spec in signature.inputs)
    return 1 if low > 1 or not floats else SIZES[-1] if high is None else min(high, SIZES[-1])


def _has_fixed_rows(spec: TensorSpec) -> bool:
    return all(isinstance(size, int) for size in spec.shape[1:])


def _seconds(session: Session, inputs: Sequence[Array]) -> float:
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        session.run(inputs)
        times.append(time.perf_counter() - start)
    return min(times)


def _is_close(one: Array, other: Array) -> bool:
    if one.dtype.kind not in "fV":
        return one.tobytes() == other.tobytes()
    left, right = one.astype(np.float64), other.astype(np.float64)
    largest = float(np.abs(left).max(initial=0.0))
    return bool(np.allclose(left, right, rtol=1e-4, atol=1e-5 * largest, equal_nan=True))
