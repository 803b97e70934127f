"""Every call of the API as a Flow: the request, and what its answer becomes. No I/O but reading the model file."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import quote

from numpy.typing import ArrayLike

from relaxd.errors import CompilationError, RelaxdError, RequestError, StillRunning, UnknownCompilation, problem_error
from relaxd.nouns import JsonObject, PassInfo, RecipeInfo, Signature, Snapshot, Step, TensorSpec, Verification
from relaxd.record import CompilationRecord
from relaxd.report import text_diff
from relaxd.sending import Flow, Pause, Request, UploadParts, read_answer, send
from relaxd.tensors import Array, decode_outputs, encode_examples, encode_inference, name_inputs, needs_signature

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes"
Passes: TypeAlias = "str | Sequence[str | Mapping[str, Any]]"
InputSpecs: TypeAlias = "Sequence[TensorSpec | Mapping[str, Any]]"
OnStep: TypeAlias = Callable[[Step], object]
OnRecord: TypeAlias = Callable[[CompilationRecord], object]

IR_FORMATS = {
    "text": "text/plain",
    "html": "text/html",
    "dot": "text/vnd.graphviz",
    "model_explorer": "application/vnd.model-explorer+json",
}

# The server answers a waiting GET when the Compilation ends, not at each step. Someone who watches the steps gets
# each of them at most this late; without a watcher fewer requests do.
WATCHED_POLL_S = 1
UNWATCHED_POLL_S = 20
# The least time between two polls, for a server or proxy that does not honour `Prefer: wait`.
SHORTEST_POLL_S = 0.2


def compile_model(
    source: ModelSource | None,
    *,
    passes: Passes | None,
    verify: str,
    special_values: str | None,
    inputs: InputSpecs | None,
    example_inputs: Mapping[str, ArrayLike] | None,
    target: Mapping[str, Any] | None,
    importing: Mapping[str, Any] | None,
    pass_context: Mapping[str, Any] | None,
    until: str | None,
    base: tuple[str, int] | None,
    keep: bool,
    on_step: OnStep | None,
    wait_s: float,
    on_record: OnRecord | None = None,
) -> Flow[CompilationRecord]:
    """The Compilation of the model, once it has succeeded.

    `on_step` is called with every Step once, in order, also with those before a failure and those of a Compilation
    that the server already had; `on_record` with the Compilation as it stands, each time that it was asked for.
    Raises the Problem of a failed or cancelled one, and StillRunning after `wait_s`.
    """
    _check_start(source, base)
    document = request_document(passes, inputs, target=target, pass_context=pass_context, **{"import": importing})
    document["verify"] = verify
    start = None if base is None else {"id": base[0], "step": base[1]}
    options = {"special_values": special_values, "until": until, "from": start, "keep": keep or None}
    document |= {name: value for name, value in options.items() if value is not None}
    examples = None if example_inputs is None else encode_examples(example_inputs)
    deadline = time.monotonic() + wait_s
    reported = 0

    def report(record: CompilationRecord) -> None:
        nonlocal reported
        if on_record is not None:
            on_record(record)
        for step in record.steps[reported:]:
            # Counted first: a callback that raises ends the call, but must not see the step again.
            reported += 1
            if on_step is not None:
                on_step(step)

    try:
        record = yield from _upload(source, document, examples)
    except CompilationError as error:
        # It had failed before, or at once: the answer is the Problem, without the steps that led to it.
        if on_step is not None and error.compilation is not None:
            with contextlib.suppress(RelaxdError):
                report((yield from get(error.compilation, 0)))
        raise
    report(record)
    while not record.ended:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise StillRunning(record.id, wait_s)
        longest_s = UNWATCHED_POLL_S if on_step is None and on_record is None else WATCHED_POLL_S
        asked_at = time.monotonic()
        record = yield from get(record.id, min(longest_s, max(1, round(left_s))))
        report(record)
        if not record.ended:
            yield Pause(max(0.0, SHORTEST_POLL_S - (time.monotonic() - asked_at)))
    return _succeeded(record)


def _check_start(source: ModelSource | None, base: tuple[str, int] | None) -> None:
    if source is None and base is None:
        raise ValueError("give a model, or with base=(id, step) the step of an earlier Compilation to go on from")


def request_document(passes: Passes | None, inputs: InputSpecs | None, **parts: Mapping[str, Any] | None) -> JsonObject:
    """The `request` part of POST /compile. What is None is left to the server's defaults."""
    document: JsonObject = {}
    if passes is not None:
        document["passes"] = passes if isinstance(passes, str) else list(passes)
    if inputs is not None:
        document["inputs"] = [spec.to_json() if isinstance(spec, TensorSpec) else dict(spec) for spec in inputs]
    return document | {name: dict(part) for name, part in parts.items() if part is not None}


def _upload(source: ModelSource | None, document: JsonObject, examples: bytes | None) -> Flow[CompilationRecord]:
    """The Compilation as the server has it right after the upload."""
    with model_parts(source, document, examples) as parts:
        answer = yield from send(Request("POST", "/compile", headers={"Prefer": "respond-async"}, parts=parts))
    return read_answer(answer, CompilationRecord.from_json)


@contextlib.contextmanager
def model_parts(source: ModelSource | None, document: JsonObject, examples: bytes | None) -> Iterator[UploadParts]:
    """The parts of an upload; a model's file is open within."""
    parts: UploadParts = {"request": (None, json.dumps(document), "application/json")}
    if examples is not None:
        parts["inputs"] = ("inputs.npz", examples, "application/octet-stream")
    if source is None:
        yield parts
        return
    with _opened(source) as (filename, content):
        yield {"model": (filename, content, "application/octet-stream"), **parts}


@contextlib.contextmanager
def _opened(source: ModelSource) -> Iterator[tuple[str, bytes | BinaryIO]]:
    """File name and content. A path is streamed from disk: a model may be larger than memory should hold twice."""
    if isinstance(source, bytes):
        yield "model.pt2", source
        return
    path = Path(source)
    with path.open("rb") as file:
        yield path.name, file


def _succeeded(record: CompilationRecord) -> CompilationRecord:
    if record.state == "succeeded":
        return record
    if record.problem is not None:
        raise record.problem
    slug = "cancelled" if record.state == "cancelled" else record.state
    detail = f"The compilation {slug} and the server says no more of it."
    raise problem_error({"type": f"/problems/{slug}", "detail": detail, "compilation": record.id})


def verify(record: CompilationRecord, wait_s: float) -> Flow[Verification]:
    """The verdict on the numbers of the library and of every step, which are checked now where they were not."""
    if record.checks == "every_step" and record.verification is not None:
        return record.verification
    if not record.ended:
        raise StillRunning(record.id, 0)
    recipe = record.raw["recipe"]
    checked = yield from compile_model(
        None,
        passes=[],
        verify="every_step",
        special_values=record.raw.get("special_values"),
        inputs=None,
        example_inputs=None,
        target=record.recipe.target or None,
        importing=record.raw.get("import"),
        pass_context=recipe.get("context"),
        until=recipe.get("until"),
        base=(record.id, len(record.recipe.passes)),
        keep=False,
        on_step=None,
        wait_s=wait_s,
    )
    if checked.verification is None:
        raise ValueError(
            "it ends before anything is built (`until`): its steps have their errors, a library it has not"
        )
    return checked.verification


def compilations(limit: int | None) -> Flow[list[CompilationRecord]]:
    """The server's Compilations, newest first."""
    answer = yield from send(Request("GET", "/compile", {} if limit is None else {"limit": limit}))
    return read_answer(answer, lambda value: [CompilationRecord.from_json(entry) for entry in value["compilations"]])


def get(compilation: str, wait_s: int) -> Flow[CompilationRecord]:
    """The Compilation, after at most `wait_s` for its end."""
    headers = {"Prefer": f"wait={wait_s}"} if wait_s > 0 else {}
    request = Request("GET", f"/compile/{_segment(compilation)}", headers=headers, wait_s=wait_s)
    answer = yield from send(request)
    return read_answer(answer, CompilationRecord.from_json)


def delete(compilation: str) -> Flow[None]:
    """Cancels or deletes."""
    yield from send(Request("DELETE", f"/compile/{_segment(compilation)}"))


def ir(compilation: str, stage: str, step: int | None, function: str | None, format: str = "text") -> Flow[str]:
    """The IR of a stage in one of IR_FORMATS. Raises ValueError for another format."""
    if format not in IR_FORMATS:
        raise ValueError(f"format must be one of {', '.join(IR_FORMATS)}, not {format!r}; `snapshot` gives the JSON")
    answer = yield from send(_ir_request(compilation, stage, step, function, IR_FORMATS[format]))
    return answer.text


def snapshot(compilation: str, stage: str, step: int | None, function: str | None) -> Flow[Snapshot]:
    """The structured form of a stage."""
    request = _ir_request(compilation, stage, step, function, "application/json")
    answer = yield from send(request)
    return read_answer(answer, Snapshot.from_json)


def diff(record: CompilationRecord, before: str | int, after: str | int) -> Flow[str]:
    """The unified diff between two stages (a name: its last step) or steps (an index)."""
    texts = []
    labels = []
    for point in (before, after):
        stage, step = (point, None) if isinstance(point, str) else (_step(record, point).stage, point)
        texts.append((yield from ir(record.id, stage, step, None)))
        labels.append(stage if step is None else f"{stage} (step {step})")
    return text_diff(texts[0], texts[1], labels[0], labels[1])


def infer(model: str, inputs: Any, signature: Signature | None) -> Flow[dict[str, Array]]:
    """The outputs by name. Asks for the Signature when it is not given and the inputs alone do not say enough."""
    if signature is None and needs_signature(inputs):
        signature = yield from _signature(model)
    arrays = name_inputs(inputs, None if signature is None else signature.inputs)
    headers = {"Content-Type": "application/json"}
    answer = yield from send(Request("POST", "/infer", headers=headers, body=encode_inference(model, arrays)))
    return read_answer(answer, decode_outputs)


def _signature(model: str) -> Flow[Signature | None]:
    """That of a Compilation, or of the version of a published model that answers."""
    try:
        return (yield from get(model, 0)).signature
    except UnknownCompilation as unknown:
        try:
            answer = yield from send(Request("GET", f"/models/{_segment(model)}"))
        except RequestError:
            raise unknown from None
    return (yield from get(read_answer(answer, lambda value: str(value["compilation"])), 0)).signature


def passes() -> Flow[list[PassInfo]]:
    """The passes of the Catalogue."""
    answer = yield from send(Request("GET", "/passes"))
    return read_answer(answer, lambda value: [PassInfo.from_json(entry) for entry in value["passes"]])


def recipes() -> Flow[list[RecipeInfo]]:
    """The presets of the Catalogue."""
    answer = yield from send(Request("GET", "/recipes"))
    return read_answer(answer, lambda value: [RecipeInfo.from_json(entry) for entry in value["recipes"]])


def health() -> Flow[JsonObject]:
    """What the server says of itself."""
    answer = yield from send(Request("GET", "/healthz"))
    return read_answer(answer, dict)


def _ir_request(compilation: str, stage: str, step: int | None, function: str | None, accept: str) -> Request:
    query: dict[str, str | int] = {"id": compilation}
    if step is not None:
        query["step"] = step
    if function is not None:
        query["function"] = function
    return Request("GET", f"/ir/{_segment(stage)}", query, {"Accept": accept})


def _step(record: CompilationRecord, index: int) -> Step:
    for step in (*record.steps, *record.results):
        if step.index == index:
            return step
    raise IndexError(f"compilation {record.id} has no step {index}; it has {len(record.steps)}, counted from 0")


def _segment(text: str) -> str:
    """`text` as one segment of a path, so that a slash in it cannot reach another resource."""
    return quote(text, safe="")
