"""JSON of a stranger, parsed under limits of size, depth and number of values."""

from __future__ import annotations

import json
from typing import Any

from service.compiler.readers.refusal import damaged, shown, unsafe

MAX_BYTES = 64 << 20
MAX_VALUES = 4_000_000


def parse_json(data: bytes, where: str) -> Any:
    """The value. Raises DamagedModel, UnsafeModel."""
    if len(data) > MAX_BYTES:
        raise unsafe(f"A JSON part has {len(data)} bytes, at most {MAX_BYTES} are taken", where)
    # Every value but the first of its container stands behind a comma, and every container takes a bracket.
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise unsafe(f"A JSON part has more than {MAX_VALUES} values", where)
    try:
        return json.loads(data.decode())
    except ValueError as error:
        raise damaged(f"A part is not JSON: {shown(str(error))}", where) from error
    except RecursionError as error:
        raise unsafe("A JSON part is nested too deeply", where) from error
