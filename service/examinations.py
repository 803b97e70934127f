"""What is found out about a Compilation after its end, on request, by workers of its own: the assembly, a profile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from service.compilations import Compilations
from service.diagnosis import INPUTS_FILE, job_of
from service.errors import CompilationNotReady, InternalError, JsonObject
from service.link_workers import disassemble
from service.listings import assembly_functions, snapshot_of
from service.nouns import Confinement, Limits, Stage, Step
from service.pool import Deadline, Pool, checked
from service.profiles import input_specs, parse_sizes, report
from service.records import Artifact, Compilation
from service.run import confinement_of, frame_limits_of
from service.wire import Frame, FrameLimits
from service.work_folder import COMPILE_FILES, LIBRARY, work_folder
from service.worker_user import worker_uid

MAX_JSON = 1 << 20


class Examinations:
    """Examines one Compilation at a time: it is a service for people who look, beside those who compile."""

    def __init__(self, pool: Pool, limits: Limits, scratch: Path, compilations: Compilations) -> None:
        self._pool = pool
        self._limits = limits
        self._scratch = scratch
        self._compilations = compilations
        self._one = asyncio.Lock()

    async def with_assembly(self, key: str) -> Compilation:
        """The Compilation with the result ``asm``, read off its library and kept when it is asked for first.

        Raises CompilationNotReady, UnknownCompilation, StoreDamaged, BuildFailed, DeadlineExceeded, InternalError.
        """
        async with self._one:
            compilation = self._compilations.get(key)
            if any(result.stage is Stage.ASM for result in compilation.results):
                return compilation
            started = asyncio.get_running_loop().time()
            path = await asyncio.to_thread(self._compilations.library, self._library(compilation))
            text = await disassemble(self._pool, self._scratch, path, self._limits)
            functions = await asyncio.to_thread(assembly_functions, text)
            wall_ms = round((asyncio.get_running_loop().time() - started) * 1e3, 3)
            blob = json.dumps(snapshot_of(functions)).encode()
            index = 1 + max(step.index for step in (*compilation.steps, *compilation.results))
            step = Step(index, Stage.ASM, None, {}, True, wall_ms, wall_ms, functions=len(functions))
            return await self._compilations.add_result(key, step, blob)

    async def expand(self, key: str, step: int) -> list[JsonObject]:
        """The passes of TVM that run inside of a step, or of the build for a result of it: see `compiler.expanding`.

        Raises UnknownCompilation, StoreDamaged, DeadlineExceeded, InternalError, and what the step itself raised.
        """
        compilation = self._compilations.get(key)
        readable = await asyncio.to_thread(self._compilations.uploaded, compilation)
        job = job_of(compilation, self._limits, INPUTS_FILE in readable)
        async with self._one:
            with work_folder(self._scratch, readable, COMPILE_FILES) as folder:
                seconds = self._limits.compile_s
                deadline = Deadline(seconds, f"Running the step again was stopped after {seconds:g} s.")
                confinement, limits = confinement_of(self._limits, folder), frame_limits_of(self._limits)
                doing = "while it ran the step again"
                async with self._pool.lend("compile", confinement, limits, deadline, doing) as worker:
                    await worker.send(Frame({"op": "expand", "job": job.to_json(), "step": step}))
                    answer = checked(await worker.receive(), "expanded")
        try:
            return [_inner(each) for each in json.loads(bytes(answer.blobs[0]))]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise InternalError("The compile worker sent an expansion that makes no sense.") from error

    async def profile(self, key: str, runs: int, sizes: str | None) -> JsonObject:
        """Time by kernel and by source line, beside what the machine can do. `sizes` gives symbols their sizes.

        Raises CompilationNotReady, UnknownCompilation, InvalidField, StoreDamaged, ExecutionFailed, DeadlineExceeded,
        InternalError.
        """
        compilation = self._compilations.get(key)
        artifact, signature = self._library(compilation), compilation.signature
        if signature is None:
            raise InternalError("The Compilation has a library and no Signature.")
        chosen = parse_sizes(sizes, signature)
        specs = [spec.to_json() for spec in input_specs(signature, chosen)]
        async with self._one:
            measured, machine = await self._measure(artifact, specs, runs)
        index = {result.stage: result.index for result in compilation.results}
        tir = await self._compilations.snapshot(key, index[Stage.TIR])
        last = await self._compilations.snapshot(key, len(compilation.steps) - 1)
        first = await self._compilations.snapshot(key, 0)
        figures = report(measured, machine, tir, last, first.get("origins", []))
        return {"id": key, "sizes": chosen, "inputs": specs, **figures}

    async def _measure(self, artifact: Artifact, specs: list[JsonObject], runs: int) -> tuple[JsonObject, JsonObject]:
        path = await asyncio.to_thread(self._compilations.library, artifact)
        with work_folder(self._scratch, {LIBRARY: path}, ()) as folder:
            memory, seconds = self._limits.infer_memory_bytes, self._limits.examine_s
            # With several threads it uses more CPU seconds than seconds.
            confinement = Confinement(memory, seconds * 4, 0, str(folder), (), worker_uid())
            deadline = Deadline(seconds, f"Profiling was stopped after {seconds} s. Ask for fewer `runs`.")
            limits = FrameLimits(MAX_JSON, 0)
            async with self._pool.lend("infer", confinement, limits, deadline, "while it was profiled") as worker:
                await worker.send(Frame({"op": "load", "library_path": f"./{LIBRARY}"}))
                checked(await worker.receive(), "ready")
                await worker.send(Frame({"op": "profile", "inputs": specs, "runs": runs}))
                body = checked(await worker.receive(), "profiled").body
        try:
            return _held(body["profile"]), {
                name: float(body["machine"][name]) for name in ("flops_per_s", "bytes_per_s")
            }
        except (KeyError, TypeError, ValueError) as error:
            raise InternalError("The infer worker sent a profile that makes no sense.") from error

    def _library(self, compilation: Compilation) -> Artifact:
        if compilation.artifact is None:
            raise CompilationNotReady(
                f"Compilation {compilation.id!r} is {compilation.state.value}: it has no library to look into.",
                id=compilation.id,
                state=compilation.state.value,
            )
        return compilation.artifact


def _held(profile: JsonObject) -> JsonObject:
    """A worker's profile in its form. Raises KeyError, TypeError, ValueError where it is not."""
    figures = ("min_us", "median_us", "spread_us")
    return {
        "runs": int(profile["runs"]),
        "total": {name: float(profile["total"][name]) for name in figures},
        "functions": [
            {"function": str(each["function"]), "calls": int(each["calls"])}
            | {name: float(each[name]) for name in figures}
            for each in profile["functions"]
        ],
    }


def _inner(entry: JsonObject) -> JsonObject:
    """One inner pass in its form. Raises KeyError, TypeError, ValueError where it is not."""
    text = entry["text"]
    return {
        "name": str(entry["name"]),
        "level": int(entry["level"]),
        "changed": bool(entry["changed"]),
        "wall_ms": float(entry["wall_ms"]),
        "text": None if text is None else str(text),
    }
