"""`relaxd.compile`: a PyTorch object or a file, compiled in one call, as something to call."""

from __future__ import annotations

import atexit
import functools
import os
from typing import Any

from relaxd.calls import InputSpecs, Passes
from relaxd.client import Client, Compilation
from relaxd.connection import DEFAULT_URL
from relaxd.exporting import model_file


def compile(
    model: Any,
    example_inputs: Any = None,
    passes: Passes | None = None,
    dynamic_shapes: Any = None,
    url: str | None = None,
    *,
    inputs: InputSpecs | None = None,
    **options: Any,
) -> Compilation:
    """Compiles a model on a relaxd server; the result is called with arrays or torch tensors, as the model is.

    `model` is an nn.Module (exported here by torch.export in evaluation mode, with `example_inputs`, a tuple or a dict
    by argument name, and `dynamic_shapes`, where a string stands for the Dim of that name), an ExportedProgram, a
    ScriptModule, a GraphModule, or the path of a file. `url` is the server's; without it that of the environment
    variable ``RELAXD_URL``, or the local one. `inputs` and `options` are those of `Client.compile`, whose errors it
    raises, and TypeError for arguments that make no model file.
    """
    with model_file(model, example_inputs, dynamic_shapes) as file:
        declared = inputs if inputs is not None else file.inputs
        client = _client(url or os.environ.get("RELAXD_URL") or DEFAULT_URL, os.environ.get("RELAXD_API_KEY"))
        return client.compile(file.path, passes=passes, inputs=declared, example_inputs=file.example_inputs, **options)


@functools.cache
def _client(url: str, api_key: str | None) -> Client:
    """One Client per server and key, which the Compilations go on using; closed when the process ends."""
    client = Client(url, api_key=api_key)
    atexit.register(client.close)
    return client
