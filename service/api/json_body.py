"""JSON from strangers: parsed strictly, with errors that say where."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn

from service.errors import JsonObject, MalformedRequest


def parse_object(data: bytes, what: str) -> JsonObject:
    """The JSON object in `data`. Raises MalformedRequest, also for NaN, duplicate names and too deep nesting."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise MalformedRequest(f"{what} has the name {twice[:100]!r} twice in one object.")
        return value

    def no_constants(name: str) -> NoReturn:
        raise MalformedRequest(f'{what} has a bare {name}, which is not JSON. Write it as a string: "{name}".')

    try:
        # Not the bytes: `json` would guess UTF-16 and UTF-32 as well, which JSON between machines never is (RFC 8259).
        value = json.loads(data.decode(), object_pairs_hook=no_duplicates, parse_constant=no_constants)
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"{what} is not UTF-8: {error.reason} at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise MalformedRequest(
            f"{what} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            line=error.lineno,
            column=error.colno,
        ) from error
    except RecursionError as error:
        raise MalformedRequest(f"{what} is nested too deeply.") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise MalformedRequest(f"{what} has a number that cannot be read: {error}.") from error
    if re.search(rb"\\u[dD][89a-fA-F]", data):
        _refuse_half_characters(value, what)
    if not isinstance(value, dict):
        raise MalformedRequest(f"{what} must be a JSON object, not {type(value).__name__}.")
    return value


def _refuse_half_characters(value: Any, what: str) -> None:
    """JSON can write half of a surrogate pair, which no text can hold: it could be neither looked up nor answered."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise MalformedRequest(f"{what} has half of a surrogate pair (\\uD800 to \\uDFFF alone).") from error
