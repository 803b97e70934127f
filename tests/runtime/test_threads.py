"""A library runs with the threads that its target names: loops in the code, threads in the worker, same results."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from service.compiler.compile import compile_model
from service.compiler.recipes import load_catalogue
from service.nouns import CompileJob, Confinement, Limits, ModelFormat, Target, Verify
from service.pool import Pool
from service.runtime.session import Session
from service.runtime.threads import ALL_CORES, allow_threads
from service.wire import Frame, FrameLimits

CORES = len(os.sched_getaffinity(0))
X = np.random.default_rng(0).standard_normal((64, 256)).astype("float32")


@pytest.fixture(scope="module", params=[1, 2, ALL_CORES])
def compiled(request, tmp_path_factory):
    """The threads asked for, the library, its manifest, the text of the last step, the expected result for X."""
    folder = tmp_path_factory.mktemp("threads")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)).eval()
    torch.export.save(torch.export.export(model, (torch.from_numpy(X),)), folder / "given.pt2")
    recipe = load_catalogue().recipe("fast", Target(threads=request.param), 200)
    job = CompileJob(
        str(folder / "given.pt2"), ModelFormat.EXPORTED_PROGRAM, recipe, Verify.ARTIFACT, None, None, str(folder), Limits()
    )  # fmt: skip
    frames = []
    compile_model(job, lambda *frame: frames.append(frame))
    texts = [json.loads(part)["text"] for frame in frames for part in _blobs(frame) if part.startswith(b'{"')]
    manifest = next(
        each["manifest"] for frame in frames for each in frame if isinstance(each, dict) and "manifest" in each
    )
    expected = model(torch.from_numpy(X)).detach().numpy()
    return request.param, job.library_path, manifest, [text for text in texts if "scheduled" in text][-1], expected


def _blobs(frame):
    for each in frame:
        if isinstance(each, bytes):
            yield each
        elif isinstance(each, tuple | list):
            yield from (part for part in each if isinstance(part, bytes))


def test_loops_are_parallel_where_more_than_one_thread_is_asked_for(compiled):
    threads, library, manifest, text, _ = compiled
    assert manifest["target"]["threads"] == threads
    assert ("T.parallel(" in text) == (threads != 1)
    assert Session(library).threads == threads


def test_a_worker_starts_the_threads_that_the_library_asks_for(compiled):
    threads, library, _, _, expected = compiled

    async def scenario():
        pool = Pool()
        try:
            confinement = Confinement(1 << 30, 60, 0, str(Path(library).parent))
            worker = await pool.fork("infer", confinement, FrameLimits())
            await worker.send(Frame({"op": "load", "library_path": library}))
            assert (await worker.receive()).body == {"event": "ready"}
            inputs = [{"dtype": "float32", "shape": list(X.shape)}]
            await worker.send(Frame({"op": "run", "inputs": inputs}, (X.tobytes(),)))
            (answer,) = (await worker.receive()).blobs
            number = len(os.listdir(f"/proc/{worker.pid}/task"))
            await worker.end()
            return number, np.frombuffer(answer, "float32").reshape(64, 64)
        finally:
            await pool.close()

    number, result = asyncio.run(scenario())
    assert number == (CORES if threads == ALL_CORES else min(threads, CORES))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("wanted", "number"), [(1, 1), (ALL_CORES, CORES), (1000, CORES)])
def test_no_more_threads_than_cores(wanted, number, monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    monkeypatch.setenv("TVM_BIND_THREADS", "1")
    assert allow_threads(wanted) == number
    assert os.environ["TVM_NUM_THREADS"] == str(number)
