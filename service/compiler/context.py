"""TVM's PassContext as a Recipe gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from service.errors import JsonObject
from service.nouns import PassContext


def pass_context(context: PassContext, instruments: Sequence[Any] = ()) -> Any:
    """What TVM's passes and its build run in. An inner PassContext hides an outer one: make each by this function."""
    return tvm.transform.PassContext(
        opt_level=context.opt_level,
        disabled_pass=list(context.disabled),
        config=dict(context.config),
        instruments=list(instruments),
    )


def extended(
    config: JsonObject, context: Any = None, instruments: Sequence[Any] = (), disabled: Sequence[str] = ()
) -> Any:
    """`context`, or the one that holds now, with more settings; with other instruments where these are given."""
    now = context or tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=[*now.disabled_pass, *disabled],
        config={**dict(now.config.items()), **config},
        instruments=list(instruments or now.instruments),
    )
