"""`relaxd.compile`: a PyTorch object or a file, compiled in one call, as something to call."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

from relaxd.calls import InputSpecs, OnRecord, OnStep, Passes
from relaxd.client import Client, Compilation
from relaxd.connection import DEFAULT_URL
from relaxd.exporting import model_file
from relaxd.local import LOCAL, local_client


def compile(
    model: Any,
    example_inputs: Any = None,
    passes: Passes | None = None,
    dynamic_shapes: Any = None,
    url: str | None = None,
    *,
    inputs: InputSpecs | None = None,
    on_step: OnStep | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Compilation:
    """Compiles a model on a relaxd server; the result is called with arrays or torch tensors, as the model is.

    `model` is an nn.Module (exported here by torch.export in evaluation mode, with `example_inputs`, a tuple or a dict
    by argument name, and `dynamic_shapes`, where a string stands for the Dim of that name), an ExportedProgram, a
    ScriptModule, a GraphModule, or the path of a file. `url` is the server's; without it that of the environment
    variable ``RELAXD_URL``, or that on port 8000 here; ``local`` starts one for this process alone (`local_client`).
    `progress` shows a bar with the step at work, by rich; None is where stderr is a terminal or a notebook. `inputs`,
    `on_step` and `options` are those of `Client.compile`, whose errors it raises, and TypeError for arguments that make
    no model file.
    """
    with model_file(model, example_inputs, dynamic_shapes) as file:
        declared = inputs if inputs is not None else file.inputs
        client = _client(url or os.environ.get("RELAXD_URL") or DEFAULT_URL, os.environ.get("RELAXD_API_KEY"))
        with _shown(progress) as on_record:
            return client.compile(
                file.path,
                passes=passes,
                inputs=declared,
                example_inputs=file.example_inputs,
                on_step=on_step,
                on_record=on_record,
                **options,
            )


@contextlib.contextmanager
def _shown(wanted: bool | None) -> Iterator[OnRecord | None]:
    """Shows a progress bar on stderr where that is wanted and rich is there; what it must be told."""
    if wanted is False or importlib.util.find_spec("rich") is None:
        yield None
        return
    from rich.console import Console

    from relaxd.progress import progress_bar

    console = Console(stderr=True)
    if wanted is None and not (console.is_terminal or console.is_jupyter):
        yield None
        return
    with progress_bar(console) as on_record:
        yield on_record


@functools.cache
def _client(url: str, api_key: str | None) -> Client:
    """One Client per server and key, which the Compilations go on using; closed when the process ends."""
    opened = contextlib.ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(local_client() if url == LOCAL else Client(url, api_key=api_key))
