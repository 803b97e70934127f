"""The asynchronous client, on asyncio. The same Flows as `client`'s, so only the awaits are its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
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


class AsyncClient:
    """As `Client`, with coroutines. `on_step` stays a plain function; it runs on the event loop."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        timeout: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
        api_key: str | None = None,
    ) -> None:
        self._timeout_s = timeout
        headers = key_headers(api_key)
        self._http = httpx.AsyncClient(base_url=check_base_url(base_url), transport=transport, headers=headers)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def compile(
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
    ) -> AsyncCompilation:
        """As `Client.compile`. Cancelling the task stops the waiting, not the Compilation, which others may share."""
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
        return self._bind(await self._run(flow))

    async def compilations(self, limit: int | None = None) -> list[AsyncCompilation]:
        """As `Client.compilations`."""
        return [self._bind(record) for record in await self._run(calls.compilations(limit))]

    async def get(self, compilation: str, *, wait_s: int = 0) -> AsyncCompilation:
        """As `Client.get`."""
        return self._bind(await self._run(calls.get(compilation, wait_s)))

    async def delete(self, compilation: str) -> None:
        """As `Client.delete`."""
        await self._run(calls.delete(compilation))

    async def ir(
        self, compilation: str, stage: str, step: int | None = None, function: str | None = None, format: str = "text"
    ) -> str:
        """As `Client.ir`."""
        return await self._run(calls.ir(compilation, stage, step, function, format))

    async def snapshot(
        self, compilation: str, stage: str, step: int | None = None, function: str | None = None
    ) -> Snapshot:
        """As `Client.snapshot`."""
        return await self._run(calls.snapshot(compilation, stage, step, function))

    async def infer(self, compilation: str, inputs: Mapping[str, ArrayLike] | ArrayLike) -> dict[str, Array]:
        """As `Client.infer`."""
        return await self._run(calls.infer(compilation, inputs, None))

    async def inspect(self, model: ModelSource, *, inputs: InputSpecs | None = None) -> Inspection:
        """As `Client.inspect`."""
        return await self._run(surveys.inspect(model, inputs))

    async def operators(self) -> Operators:
        """As `Client.operators`."""
        return await self._run(surveys.operators())

    async def profile(
        self, compilation: str, *, runs: int | None = None, sizes: Mapping[str, int] | None = None
    ) -> Profile:
        """As `Client.profile`."""
        return await self._run(surveys.profile(compilation, runs, sizes))

    async def provenance(
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
        """As `Client.provenance`."""
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
        return await self._run(flow)

    async def models(self) -> list[PublishedModel]:
        """As `Client.models`."""
        return await self._run(publishing.models())

    async def publish(self, name: str, compilation: str | int) -> PublishedModel:
        """As `Client.publish`."""
        return await self._run(publishing.publish(name, compilation))

    async def withdraw(self, name: str) -> None:
        """As `Client.withdraw`."""
        await self._run(publishing.withdraw(name))

    async def artifact(self, compilation: str) -> Artifact:
        """As `Client.artifact`."""
        return await self._run(publishing.artifact(compilation))

    async def download(self, compilation: str, path: str | os.PathLike[str]) -> Path:
        """As `Client.download`."""
        return await self._run(publishing.download(compilation, path))

    async def repro(self, compilation: str) -> bytes:
        """As `Client.repro`."""
        return await self._run(bisections.repro(compilation))

    async def report(self, compilation: str, *, profile: bool = False) -> str:
        """As `Client.report`."""
        return await self._run(bisections.report(compilation, profile))

    async def bisect(
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
        """As `Client.bisect`."""
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
        return await self._run(flow)

    async def bisection(self, compilation: str, *, wait_s: int = 0) -> Bisection:
        """As `Client.bisection`."""
        return await self._run(bisections.bisection(compilation, wait_s))

    async def stop_bisection(self, compilation: str) -> None:
        """As `Client.stop_bisection`."""
        await self._run(bisections.stop_bisection(compilation))

    async def reduced_model(self, compilation: str) -> bytes:
        """As `Client.reduced_model`."""
        return await self._run(bisections.reduced_model(compilation))

    async def passes(self) -> list[PassInfo]:
        """As `Client.passes`."""
        return await self._run(calls.passes())

    async def recipes(self) -> list[RecipeInfo]:
        """As `Client.recipes`."""
        return await self._run(calls.recipes())

    async def health(self) -> JsonObject:
        """As `Client.health`."""
        return await self._run(calls.health())

    def _bind(self, record: CompilationRecord) -> AsyncCompilation:
        return AsyncCompilation.from_json(record.raw, _client=self)

    async def _run(self, flow: Flow[T]) -> T:
        """The result of the Flow. `Client._run` is the same loop without its two awaits; change both."""
        resume: Callable[[], Request | Pause] = functools.partial(next, flow)
        with contextlib.closing(flow):
            while True:
                try:
                    wish = resume()
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # Generator's type says T, StopIteration's does not
                resume = functools.partial(next, flow)
                if isinstance(wish, Pause):
                    await asyncio.sleep(wish.seconds)
                    continue
                try:
                    answer = await self._http.send(build_request(self._http, wish, self._timeout_s))
                except httpx.RequestError as error:
                    resume = functools.partial(flow.throw, error)
                else:
                    resume = functools.partial(flow.send, answer)


@dataclass(frozen=True)
class AsyncCompilation(CompilationRecord):
    """As `Compilation`, with coroutines for what asks the server."""

    _client: AsyncClient = field(repr=False, compare=False)

    async def ir(self, stage: str, step: int | None = None, function: str | None = None, format: str = "text") -> str:
        """As `Compilation.ir`."""
        return await self._client.ir(self.id, stage, step, function, format)

    async def snapshot(self, stage: str, step: int | None = None, function: str | None = None) -> Snapshot:
        """As `Compilation.snapshot`."""
        return await self._client.snapshot(self.id, stage, step, function)

    async def diff(self, before: str | int, after: str | int) -> str:
        """As `Compilation.diff`."""
        return await self._client._run(calls.diff(self, before, after))

    async def infer(self, inputs: Mapping[str, ArrayLike] | ArrayLike) -> dict[str, Array]:
        """As `Compilation.infer`."""
        return await self._client._run(calls.infer(self.id, inputs, self.signature))

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `Compilation.__call__`."""
        arrays, from_torch = name_arguments(self.signature, args, kwargs)
        return call_outputs(await self.infer(arrays), self.signature, from_torch)

    async def profile(self, *, runs: int | None = None, sizes: Mapping[str, int] | None = None) -> Profile:
        """As `Compilation.profile`."""
        return await self._client.profile(self.id, runs=runs, sizes=sizes)

    async def verify(self, *, wait_s: float = 600.0) -> Verification:
        """As `Compilation.verify`."""
        return await self._client._run(calls.verify(self, wait_s))

    async def bisect(
        self, *, symptom: str = "auto", against: str | None = None, on_progress: OnProgress | None = None
    ) -> Bisection:
        """As `Compilation.bisect`."""
        return await self._client.bisect(self.id, symptom=symptom, against=against, on_progress=on_progress)

    async def publish(self, name: str) -> PublishedModel:
        """As `Compilation.publish`."""
        return await self._client.publish(name, self.id)

    async def artifact(self) -> Artifact:
        """As `Compilation.artifact`."""
        return await self._client.artifact(self.id)

    async def download(self, path: str | os.PathLike[str]) -> Path:
        """As `Compilation.download`."""
        return await self._client.download(self.id, path)
