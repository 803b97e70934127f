"""Runs a Compilation again outside of the server, from the folder of an unpacked ``repro.zip``.

``python rerun.py [--seconds N]`` prints every step as it is done, and how it ends: as it was recorded or otherwise.
The work is done in a process of its own, whose crash, hang or lack of memory is told like the server tells it. There
is no sandbox: the model is read by the same checks, but one that nobody knows belongs into a container.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from service.errors import InternalError, JsonObject, MemoryLimitExceeded, Problem
from service.nouns import CompileJob, Limits, ModelFormat, Recipe, SpecialValues, TensorSpec, Translator, Verify
from service.position import POSITION_BYTES, POSITION_FILE, crash, phrase, read_position, too_slow
from service.tuning import Tuning

AS_RECORDED, FAILED_AS_RECORDED, OTHERWISE = 0, 1, 2
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"), "1")
_MEMBERS = ("type", "step", "pass", "inner_pass", "function", "signal", "detail")


def main(folder: Path, arguments: list[str]) -> int:
    """0: it succeeded and was verified as recorded. 1: it failed as recorded. 2: it ended otherwise."""
    parser = argparse.ArgumentParser(prog="rerun.py", description="Runs this Compilation again, without a server.")
    parser.add_argument("--seconds", type=float, help="the limit of time, in place of the server's")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    versions = _read(folder / "versions.json")
    limits = Limits(**versions["limits"])
    if options.worker is not None:
        descriptor, work_dir = options.worker
        _work(job_of(folder, work_dir, limits), int(descriptor))
        return 0
    _tell_versions(versions)
    with tempfile.TemporaryDirectory(prefix="rerun-") as work_dir:
        end = _follow(folder, Path(work_dir), limits.compile_s if options.seconds is None else options.seconds)
    return _conclude(end, _read(folder / "compilation.json"))


def job_of(folder: Path, work_dir: str, limits: Limits) -> CompileJob:
    """The job that ``request.json`` describes, with its results in `work_dir`."""
    request = _read(folder / "request.json")
    recipe = {"name": None, "context": request["pass_context"], **{key: request[key] for key in ("passes", "target")}}
    inputs = request.get("inputs")
    return CompileJob(
        model_path=str(folder / "model"),
        format=ModelFormat(request["format"]),
        recipe=Recipe.from_json({**recipe, "until": request.get("until")}),
        verify=Verify(request["verify"]),
        inputs=None if inputs is None else tuple(map(TensorSpec.from_json, inputs)),
        inputs_path=str(folder / "inputs.npz") if (folder / "inputs.npz").exists() else None,
        work_dir=work_dir,
        limits=limits,
        special_values=SpecialValues(request["special_values"]),
        translator=Translator.from_json(request["import"]),
        tuning=Tuning.from_json(_read(folder / "tuning.json")),
    )


def _work(job: CompileJob, descriptor: int) -> None:
    """The child: compiles, and writes each event as a line of JSON."""
    with os.fdopen(descriptor, "w") as pipe:

        def emit(body: JsonObject, _blobs: tuple[bytes, ...]) -> None:
            pipe.write(json.dumps(body) + "\n")
            pipe.flush()

        try:
            import torch

            from service.compiler.compile import compile_model

            torch.set_num_threads(1)
            _limit_memory(job.limits.compile_memory_bytes)
            compile_model(job, emit)
        except Problem as problem:
            emit({"event": "failed", "problem": problem.to_json()}, ())
        except MemoryError:
            limit = job.limits.compile_memory_bytes
            full = MemoryLimitExceeded(f"The compilation needed more than {limit >> 20} MiB.", limit_bytes=limit)
            emit({"event": "failed", "problem": full.to_json()}, ())


def _limit_memory(memory_bytes: int) -> None:
    """As the server's sandbox does: private memory beyond what the process has by now."""
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + memory_bytes, used + memory_bytes))


def _follow(folder: Path, work_dir: Path, seconds: float) -> JsonObject:
    """Prints the events of the child; the last one, or that of its death."""
    (work_dir / POSITION_FILE).write_bytes(b" " * POSITION_BYTES)
    reader, writer = os.pipe()
    command = [sys.executable, "-W", "ignore", str(folder / "rerun.py"), "--worker", str(writer), str(work_dir)]
    child = subprocess.Popen(command, pass_fds=[writer], env={**os.environ, **_ONE_THREAD})  # noqa: S603
    os.close(writer)
    doing: JsonObject = {"phase": "start"}
    late = False

    def stop(*_: Any) -> None:
        nonlocal late
        late = True
        child.kill()

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(math.ceil(seconds))
    for event in _events(reader):
        if event["event"] == "begin":
            doing = {"phase": event["phase"]}
            if event["pass"] is not None:
                doing |= {"pass": event["pass"], "step": event["step"]}
        elif event["event"] == "step":
            _print(_step_line(event["step"]))
        elif event["event"] in ("succeeded", "failed"):
            signal.alarm(0)
            child.wait()
            return event
    status = child.wait()
    signal.alarm(0)
    if doing["phase"] in ("pass", "build"):
        doing |= read_position(work_dir)
    return {"event": "failed", "problem": _death(status, doing, seconds if late else None).to_json()}


def _death(status: int, doing: JsonObject, late_s: float | None) -> Problem:
    if late_s is not None:
        return too_slow(late_s, doing)
    if status >= 0:
        return InternalError(f"The process ended without an answer, with the exit code {status}.")
    problem = crash(signal.Signals(-status).name, phrase(doing))
    problem.extensions.update(doing)
    return problem


def _events(descriptor: int) -> Iterator[JsonObject]:
    with os.fdopen(descriptor) as pipe:
        for line in pipe:
            yield json.loads(line)


def _conclude(end: JsonObject, recorded: JsonObject) -> int:
    """Prints the end and how it compares with the recorded one; the exit code."""
    expected: Mapping[str, Any] | None = recorded["problem"]
    if end["event"] == "failed":
        problem = end["problem"]
        _print(f"\nfailed: {problem['title']}")
        for name in _MEMBERS:
            if name in problem:
                _print(f"  {name}: {problem[name]}")
        if expected is None:
            _print(f"OTHERWISE: it is recorded as {recorded['state']}.")
            return OTHERWISE
        compared = ("type", "step", "pass", "signal")
        others = [name for name in compared if problem.get(name) != expected.get(name)]
        if others:
            _print(f"OTHERWISE: recorded is {', '.join(f'{name} {expected.get(name)!r}' for name in others)}.")
            return OTHERWISE
        same = problem["detail"] == expected["detail"]
        _print("AS RECORDED" + ("." if same else f", but for the words of the detail: {expected['detail']}"))
        return FAILED_AS_RECORDED
    _print("\nsucceeded" + ("" if end["verification"] is None else ", and the numbers are PyTorch's"))
    for output in (end["verification"] or {}).get("outputs", ()):
        _print(f"  {output['name']}: max_abs_error {output.get('max_abs_error')} on {output.get('case')!r}")
    if expected is not None:
        _print(f"OTHERWISE: recorded is {expected['type']}: {expected['detail']}")
        return OTHERWISE
    if recorded["state"] != "succeeded":
        _print(f"OTHERWISE: it is recorded as {recorded['state']}.")
        return OTHERWISE
    same = _figures(end["verification"]) == _figures(recorded["verification"])
    _print("AS RECORDED." if same else "AS RECORDED, but for figures that rounding changes on another machine.")
    return AS_RECORDED


def _figures(verification: JsonObject | None) -> list[tuple[Any, ...]]:
    outputs = (verification or {}).get("outputs", ())
    return [(each["name"], each.get("max_abs_error"), each.get("max_rel_error")) for each in outputs]


def _step_line(step: JsonObject) -> str:
    name = step["pass"] or ("import" if step["index"] == 0 else "build")
    changed = "" if step["changed"] else "  unchanged"
    error = "" if step["error"] is None else f"  error {step['error']:.3g}"
    line = f"step {step['index']:>3}  {step['stage']:<10}  {name:<32} {step['wall_ms']:>10.1f} ms{changed}{error}"
    return "\n".join([line.rstrip(), *(f"          {note}" for note in step["notes"])])


def _tell_versions(versions: JsonObject) -> None:
    """Prints where this machine's toolchain differs from the recorded one."""
    from service.compiler.target import toolchain

    here = toolchain()
    for name, recorded in versions["toolchain"].items():
        if here.get(name) != recorded:
            _print(f"note: {name} is {here.get(name)!r} here, recorded is {recorded!r}")


def _read(path: Path) -> JsonObject:
    document: JsonObject = json.loads(path.read_text())
    return document


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
