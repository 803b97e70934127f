"""JSON from strangers: parsed strictly, with errors that say where."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn

import orjson

from service.errors import JsonObject, MalformedRequest


def parse_object(data: bytes, what: str) -> JsonObject:
    """The JSON object in `data`. Raises MalformedRequest, also for NaN, duplicate names and too deep nesting."""
    quick = _parse_quickly(data)
    return quick if quick is not None else _parse_strictly(data, what)


def _parse_quickly(data: bytes) -> JsonObject | None:
    """What orjson reads, where it is sure to be what the strict parser reads; that one decides all else.

    orjson takes the last of two equal names, but each name has a colon after it: with as many names in the result as
    there are colons in the text, none was lost. Integers beyond 64 bits become floats, which no integer field takes.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    return value if _names(value) == data.count(b":") else None


def _names(value: Any) -> int:
    """How many names the objects in `value` have, looking into lists only as far as they hold objects."""
    if isinstance(value, dict):
        return len(value) + sum(_names(each) for each in value.values() if isinstance(each, (dict, list)))
    if value and isinstance(value[0], dict):
        return sum(_names(each) for each in value if isinstance(each, (dict, list)))
    return 0


def _parse_strictly(data: bytes, what: str) -> JsonObject:

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
