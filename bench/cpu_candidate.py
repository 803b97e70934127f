"""One candidate of the CPU benchmark in a process of its own: ``CANDIDATE MODEL THREADS``.

It makes the model ready, checks one answer against PyTorch eager, prints a line of JSON, and then answers each line of
input with the times of a round.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROUND_S = 0.4
_TOLERANCE = 1e-3

Call = Callable[[], Any]


def leaves(result: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [leaf for each in result for leaf in leaves(each)]
    return [np.asarray(result)]


def eager(module: Any, inputs: Any, _: int) -> tuple[Call, str]:
    import torch

    return lambda: module(*inputs), torch.__version__


def compiled(module: Any, inputs: Any, _: int) -> tuple[Call, str]:
    import torch
    from torch._inductor import config

    config.freezing = True
    function = torch.compile(module)
    return lambda: function(*inputs), torch.__version__


def _onnx(module: Any, inputs: Any, folder: str) -> str:
    import torch

    path = f"{folder}/model.onnx"
    torch.onnx.export(module, inputs, path, dynamo=True, verbose=False, external_data=False)
    return path


def onnxruntime(module: Any, inputs: Any, threads: int) -> tuple[Call, str]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        session = ort.InferenceSession(_onnx(module, inputs, folder), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feed = dict(zip(names, (value.numpy() for value in inputs), strict=False))
    return lambda: session.run(None, feed), ort.__version__


def openvino(module: Any, inputs: Any, threads: int) -> tuple[Call, str]:
    import openvino as ov

    core = ov.Core()
    with tempfile.TemporaryDirectory() as folder:
        model = core.read_model(_onnx(module, inputs, folder))
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", options).create_infer_request()
    tensors = [ov.Tensor(value.numpy(), shared_memory=True) for value in inputs]
    for index, tensor in enumerate(tensors[: len(request.model_inputs)]):
        request.set_input_tensor(index, tensor)

    def call() -> Any:
        request.infer(share_outputs=True)
        return [tensor.data for tensor in request.output_tensors]

    return call, ov.__version__


def plain_tvm(module: Any, inputs: Any, _: int) -> tuple[Call, str]:
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    mod = from_exported_program(torch.export.export(module, inputs), keep_params_as_input=False)
    machine = relax.VirtualMachine(tvm.compile(mod, target=tvm.target.Target("llvm")), tvm.cpu())
    return _tvm_call(machine["main"], inputs), tvm.__version__


def relaxd(module: Any, inputs: Any, threads: int) -> tuple[Call, str]:
    import torch

    from service.compiler.compile import compile_model
    from service.compiler.recipes import load_catalogue
    from service.nouns import CompileJob, Limits, ModelFormat, Target, Verify
    from service.runtime.session import Session
    from service.version import VERSION

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/upload.pt2"
        torch.export.save(torch.export.export(module, inputs), path)
        recipe = load_catalogue().recipe("fast", Target(threads=threads), 200)
        job = CompileJob(
            path, ModelFormat.EXPORTED_PROGRAM, recipe, Verify.ARTIFACT, None, None, folder, Limits()
        )  # fmt: skip
        compile_model(job, lambda *_: None)
        session = Session(job.library_path)
    return _tvm_call(session._entry, inputs, session), VERSION


def _tvm_call(entry: Any, inputs: Any, keep: Any = None) -> Call:
    import tvm

    tensors = [tvm.runtime.tensor(value.numpy()) for value in inputs]

    def call() -> Any:
        result = entry(*tensors)
        return [result] if isinstance(result, tvm.runtime.Tensor) else list(result)

    call.keep = keep  # type: ignore[attr-defined]
    return call


CANDIDATES: dict[str, Callable[[Any, Any, int], tuple[Call, str]]] = {
    "relaxd": relaxd,
    "eager": eager,
    "compile": compiled,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "tvm": plain_tvm,
}


def _as_numpy(value: Any) -> Any:
    if isinstance(value, dict):
        return [_as_numpy(each) for each in value.values()]
    if isinstance(value, list | tuple):
        return [_as_numpy(each) for each in value]
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def error_of(call: Call, module: Any, inputs: Any) -> float:
    """The largest difference from eager, relative to its largest value."""
    worst = 0.0
    for mine, theirs in zip(leaves(_as_numpy(call())), leaves(_as_numpy(module(*inputs))), strict=True):
        scale = float(np.abs(theirs).max()) or 1.0
        worst = max(worst, float(np.abs(mine.reshape(theirs.shape) - theirs).max()) / scale)
    return worst


def one_round(call: Call) -> dict[str, float]:
    """Seconds of a call: the smallest and the median of many, in wall time and in CPU time of the process."""
    start, start_cpu = time.perf_counter(), time.process_time()
    call()
    each = max(time.perf_counter() - start, 1e-7)
    if each > ROUND_S:
        spent = time.process_time() - start_cpu
        return {"wall_min": each, "wall_median": each, "cpu_min": spent, "cpu_median": spent}
    repeat = max(int(0.002 / each), 1)
    wall: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + ROUND_S
    while time.perf_counter() < end or len(wall) < 3:
        before, before_cpu = time.perf_counter(), time.process_time()
        for _ in range(repeat):
            call()
        wall.append((time.perf_counter() - before) / repeat)
        cpu.append((time.process_time() - before_cpu) / repeat)
    return {
        "wall_min": min(wall), "wall_median": statistics.median(wall),
        "cpu_min": min(cpu), "cpu_median": statistics.median(cpu),
    }  # fmt: skip


def main(candidate: str, model: str, threads: int) -> None:
    """Serves rounds until its input ends."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import torch

    from bench.cpu_models import make

    torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, inputs = make(model)
    with torch.no_grad():
        start = time.process_time()
        call, version = CANDIDATES[candidate](module, inputs, threads)
        error = error_of(call, module, inputs)
        ready = time.process_time() - start
        report = {"version": version, "error": error, "ready_cpu_s": ready, "right": error < _TOLERANCE}
        print(json.dumps(report), file=answers, flush=True)
        for _ in sys.stdin:
            print(json.dumps(one_round(call)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
