"""The synchronous client and its Compilation. Each method is one line: the Flow of `calls`, run to its end."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
from numpy.typing import ArrayLike

from relaxd import bisection as bisections
from relaxd import calls, publishing, surveys
from relaxd.arguments import call_outputs, name_arguments
from relaxd.bisection import Bisection, OnProgress
from relaxd.calls import InputSpecs, ModelSource, OnRecord, OnStep, Passes
from relaxd.connection import DEFAULT_URL, build_request, check_base_url, key_headers
from relaxd.nouns import JsonObject, PassInfo, RecipeInfo, Snapshot, Verification
from relaxd.publishing import Artifact, PublishedModel
from relaxd.record import CompilationRecord
from relaxd.sending import Flow, Pause, Request
from relaxd.surveys import Inspection, Operators, Profile, Provenance
from relaxd.tensors import Array

T = TypeVar("T")


class Client:
    """A connection to one relaxd server, to be closed (or used in a `with`). Threads may share it.

    `timeout` is how many seconds the server may take for an answer, beyond what it was asked to wait. `transport`
    replaces the network, for tests. `api_key` is for a server that asks for one; ``RELAXD_API_KEY`` does the same.
    Every method raises ProblemError for an error that the server reports, ServerUnreachable or AnswerTimeout for one
    of the network, and UnexpectedAnswer for an answer that makes no sense.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        api_key: str | None = None,
    ) -> None:
        self._timeout_s = timeout
        headers = key_headers(api_key)
        self._http = httpx.Client(base_url=check_base_url(base_url), transport=transport, headers=headers)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def compile(
        self,
        model: ModelSource | None = None,
        *,
        passes: Passes | None = None,
        verify: str = "artifact",
        special_values: str | None = None,
        inputs: InputSpecs | None = None,
        example_inputs: Mapping[str, ArrayLike] | None = None,
        target: Mapping[str, Any] | None = None,
        importing: Mapping[str, Any] | None = None,
        pass_context: Mapping[str, Any] | None = None,
        until: str | None = None,
        base: tuple[str, int] | None = None,
        keep: bool = False,
        on_step: OnStep | None = None,
        on_record: OnRecord | None = None,
        wait_s: float = 600.0,
    ) -> Compilation:
        """Compiles a model file (a path, or its bytes) and returns when it has succeeded.

        `passes` is a preset's name, or a list of names of passes and presets and ``{"name", "options"}``; None is the
        server's default. `importing` is ``{"translator", "ops"}``, and `pass_context` ``{"opt_level", "disabled",
        "config"}``.
        `special_values` is ``report`` to accept what differs from PyTorch on NaN and extremes only. `inputs` declares
        names, shapes and dtypes; `example_inputs` are arrays by name to check the numbers with. `on_step` is called
        with each Step once, in order, within about a second of its end; `on_record` with the record of the Compilation
        as it stands, about every second. `until` is a stage after whose last pass it ends, without a build. `base` is
        ``(id, step)`` of an earlier Compilation, whose passes up to there come first; `model` may be left out then.
        `keep` has the worker wait two minutes for a next Compilation that begins alike.
        Raises CompilationError when the model or a pass fails, StillRunning when `wait_s` is over.
        """
        flow = calls.compile_model(
            model,
            passes=passes,
            verify=verify,
            special_values=special_values,
            inputs=inputs,
            example_inputs=example_inputs,
            target=target,
            importing=importing,
            pass_context=pass_context,
            until=until,
            base=base,
            keep=keep,
            on_step=on_step,
            on_record=on_record,
            wait_s=wait_s,
        )
        return self._bind(self._run(flow))

    def compilations(self, limit: int | None = None) -> list[Compilation]:
        """The server's Compilations, newest first. The server may leave their steps out; `get` has them."""
        return [self._bind(record) for record in self._run(calls.compilations(limit))]

    def get(self, compilation: str, *, wait_s: int = 0) -> Compilation:
        """The Compilation in whatever state it is in, after waiting for its end for at most `wait_s` seconds."""
        return self._bind(self._run(calls.get(compilation, wait_s)))

    def delete(self, compilation: str) -> None:
        """Cancels a Compilation that has not ended, deletes one that has."""
        self._run(calls.delete(compilation))

    def ir(
        self, compilation: str, stage: str, step: int | None = None, function: str | None = None, format: str = "text"
    ) -> str:
        """The IR of a stage: of its last step, or of `step`; whole, or one `function`.

        `format` is ``text`` (TVMScript, or what ``vm``, ``tir``, ``llvm`` and ``asm`` are), ``html``, ``dot`` for
        Graphviz, or ``model_explorer``.
        """
        return self._run(calls.ir(compilation, stage, step, function, format))

    def snapshot(self, compilation: str, stage: str, step: int | None = None, function: str | None = None) -> Snapshot:
        """As `ir`, but structured: by function, with operator counts and calls."""
        return self._run(calls.snapshot(compilation, stage, step, function))

    def infer(self, compilation: str, inputs: Mapping[str, ArrayLike] | ArrayLike) -> dict[str, Array]:
        """Runs the model on arrays by name, or on one array when it has one input; the outputs by name.

        An array is sent with the dtype it has; a list takes that of the Signature. For a list or a bare array the
        Signature is asked for first; arrays by name, or `Compilation.infer`, need one request.
        """
        return self._run(calls.infer(compilation, inputs, None))

    def inspect(self, model: ModelSource, *, inputs: InputSpecs | None = None) -> Inspection:
        """What a model is, not compiled: format, Signature, parameters, operators, and each that is not supported."""
        return self._run(surveys.inspect(model, inputs))

    def operators(self) -> Operators:
        """The ATen operators that the server compiles."""
        return self._run(surveys.operators())

    def profile(self, compilation: str, *, runs: int | None = None, sizes: Mapping[str, int] | None = None) -> Profile:
        """Where the time goes, by kernel, over `runs` runs on drawn inputs; `sizes` gives symbols their sizes."""
        return self._run(surveys.profile(compilation, runs, sizes))

    def provenance(
        self,
        compilation: str,
        *,
        node: str | None = None,
        module: str | None = None,
        source: str | None = None,
        stage: str | None = None,
        step: int | None = None,
        function: str | None = None,
        binding: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> Provenance:
        """What comes from where, in pages of `limit` places.

        Start at the model (`node`, `module`, or `source` as ``net.py:12``) or at a place in the IR (`stage` and
        `function`, perhaps `binding` and `step`); without either, all of it.
        """
        flow = surveys.provenance(
            compilation,
            node=node,
            module=module,
            source=source,
            stage=stage,
            step=step,
            function=function,
            binding=binding,
            offset=offset,
            limit=limit,
        )
        return self._run(flow)

    def models(self) -> list[PublishedModel]:
        """The published models."""
        return self._run(publishing.models())

    def publish(self, name: str, compilation: str | int) -> PublishedModel:
        """Makes a Compilation (an id) the next version of a model, or lets an earlier one (a number) answer again."""
        return self._run(publishing.publish(name, compilation))

    def withdraw(self, name: str) -> None:
        """Withdraws a published name with its versions. The Compilations stay."""
        self._run(publishing.withdraw(name))

    def artifact(self, compilation: str) -> Artifact:
        """The manifest of a compiled library. `compilation` may be a published name."""
        return self._run(publishing.artifact(compilation))

    def download(self, compilation: str, path: str | os.PathLike[str]) -> Path:
        """Writes the archive of a compiled library to `path`, or into it when it is a folder; where it is now.

        It has the library with its weights, the manifest, and a script that runs it with numpy and TVM's runtime alone.
        `compilation` may be a published name. A file in the way is replaced.
        """
        return self._run(publishing.download(compilation, path))

    def repro(self, compilation: str) -> bytes:
        """A zip with all that it takes to run the Compilation again without a server: unpack, then rerun.py."""
        return self._run(bisections.repro(compilation))

    def report(self, compilation: str, *, profile: bool = False) -> str:
        """One HTML page with all that is known of the Compilation; `profile` has its time measured first."""
        return self._run(bisections.report(compilation, profile))

    def bisect(
        self,
        compilation: str,
        *,
        symptom: str = "auto",
        against: str | None = None,
        factor: float | None = None,
        attempts: int | None = None,
        seconds: float | None = None,
        on_progress: OnProgress | None = None,
        wait_s: float = 600.0,
    ) -> Bisection:
        """Which step goes wrong, which pass of TVM in it, and a smaller model that shows it, once that is found.

        `symptom` is ``auto`` (what the Compilation failed of), ``wrong``, or ``slow`` with the id of a quicker one as
        `against`, by `factor`. `attempts` and `seconds` are its limits. `on_progress` is called with the Bisection as
        it stands, every few seconds. Raises NoSymptom where nothing is wrong, StillRunning when `wait_s` is over.
        """
        flow = bisections.bisect(
            compilation,
            symptom=symptom,
            against=against,
            factor=factor,
            attempts=attempts,
            seconds=seconds,
            on_progress=on_progress,
            wait_s=wait_s,
        )
        return self._run(flow)

    def bisection(self, compilation: str, *, wait_s: int = 0) -> Bisection:
        """The bisection of a Compilation in whatever state it is in, after waiting for at most `wait_s` seconds."""
        return self._run(bisections.bisection(compilation, wait_s))

    def stop_bisection(self, compilation: str) -> None:
        """Cancels a bisection that has not ended, forgets one that has."""
        self._run(bisections.stop_bisection(compilation))

    def reduced_model(self, compilation: str) -> bytes:
        """The smallest model that a bisection has found so far, as a `.pt2`."""
        return self._run(bisections.reduced_model(compilation))

    def passes(self) -> list[PassInfo]:
        """The passes that the server has."""
        return self._run(calls.passes())

    def recipes(self) -> list[RecipeInfo]:
        """The presets that the server has."""
        return self._run(calls.recipes())

    def health(self) -> JsonObject:
        """What the server says of itself; raises when it is not up."""
        return self._run(calls.health())

    def _bind(self, record: CompilationRecord) -> Compilation:
        return Compilation.from_json(record.raw, _client=self)

    def _run(self, flow: Flow[T]) -> T:
        """The result of the Flow. `AsyncClient._run` is the same loop with two awaits; change both."""
        resume: Callable[[], Request | Pause] = functools.partial(next, flow)
        with contextlib.closing(flow):
            while True:
                try:
                    wish = resume()
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # Generator's type says T, StopIteration's does not
                resume = functools.partial(next, flow)
                if isinstance(wish, Pause):
                    time.sleep(wish.seconds)
                    continue
                try:
                    answer = self._http.send(build_request(self._http, wish, self._timeout_s))
                except httpx.RequestError as error:
                    resume = functools.partial(flow.throw, error)
                else:
                    resume = functools.partial(flow.send, answer)


@dataclass(frozen=True)
class Compilation(CompilationRecord):
    """A Compilation as it was when it was asked for, and the calls that belong to it."""

    _client: Client = field(repr=False, compare=False)

    def ir(self, stage: str, step: int | None = None, function: str | None = None, format: str = "text") -> str:
        """As `Client.ir`."""
        return self._client.ir(self.id, stage, step, function, format)

    def snapshot(self, stage: str, step: int | None = None, function: str | None = None) -> Snapshot:
        """As `Client.snapshot`."""
        return self._client.snapshot(self.id, stage, step, function)

    def diff(self, before: str | int, after: str | int) -> str:
        """The unified diff between two stages (by name: their last step) or steps (by index); empty when equal."""
        return self._client._run(calls.diff(self, before, after))

    def infer(self, inputs: Mapping[str, ArrayLike] | ArrayLike) -> dict[str, Array]:
        """As `Client.infer`, in one request."""
        return self._client._run(calls.infer(self.id, inputs, self.signature))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model on arrays or torch tensors, in the Signature's order or by name.

        One output comes as itself, more as a tuple; torch tensors when a torch tensor was given, on its device.
        """
        arrays, from_torch = name_arguments(self.signature, args, kwargs)
        return call_outputs(self.infer(arrays), self.signature, from_torch)

    def profile(self, *, runs: int | None = None, sizes: Mapping[str, int] | None = None) -> Profile:
        """As `Client.profile`."""
        return self._client.profile(self.id, runs=runs, sizes=sizes)

    def verify(self, *, wait_s: float = 600.0) -> Verification:
        """Whether its numbers are PyTorch's, of the library and after every step.

        Where only the library was checked, it is compiled once more with every step checked, without sending the model
        again. Raises VerificationFailed when they are not.
        """
        return self._client._run(calls.verify(self, wait_s))

    def bisect(
        self, *, symptom: str = "auto", against: str | None = None, on_progress: OnProgress | None = None
    ) -> Bisection:
        """As `Client.bisect`."""
        return self._client.bisect(self.id, symptom=symptom, against=against, on_progress=on_progress)

    def publish(self, name: str) -> PublishedModel:
        """As `Client.publish`."""
        return self._client.publish(name, self.id)

    def artifact(self) -> Artifact:
        """As `Client.artifact`."""
        return self._client.artifact(self.id)

    def download(self, path: str | os.PathLike[str]) -> Path:
        """As `Client.download`."""
        return self._client.download(self.id, path)
