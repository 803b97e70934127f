"""Values from requests held against JSON Schema, with the first flaw said in one sentence and its exact path."""

from __future__ import annotations

import functools
import re
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from service.errors import JsonObject, nearest

_SHOWN = 80


class Flaw(ValueError):
    """What is wrong with a value: `path` leads to the place inside it (``nodes.mm.dtype``), `reason` says what.

    `near` are the most similar names where a name is not known; `unknown` says that it is the name of a field.
    """

    def __init__(self, path: str, reason: str, near: list[str] | None = None, unknown: bool = False) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason
        self.near = near or []
        self.unknown = unknown


def join_path(*parts: str) -> str:
    """Paths one after the other: a name is set off by a dot, an index is not."""
    path = ""
    for part in parts:
        path += part if not path or not part or part.startswith("[") else f".{part}"
    return path


def find_flaw(value: Any, schema: JsonObject) -> Flaw | None:
    """The first flaw of `value` by `schema`, or None.

    A number such as 2.0 is no integer. A `pattern` holds for the whole text.
    """
    # Not all of them: there may be as many as the request has bytes.
    error = next(_validator()(schema).iter_errors(value), None)
    return None if error is None else _flaw(error)


def _is_integer(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@functools.cache
def _validator() -> Any:
    """The validator class. Imported when it is needed first: what compiles has no use for it."""
    import jsonschema  # type: ignore[import-untyped]

    def whole_pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
        # Not `re.search`: in Python, `$` lets a line break stand behind it.
        if isinstance(value, str) and not re.fullmatch(pattern, value):
            yield jsonschema.ValidationError(f"is not of the form {pattern}")

    def bounded(rule: str) -> Any:
        check = jsonschema.Draft202012Validator.VALIDATORS[rule]

        def unless_too_many(validator: Any, parts: Any, value: Any, schema: Any) -> Iterator[Any]:
            # Where there are more parts than the schema allows, that is the flaw, and none of them is looked at.
            most = schema.get("maxItems" if isinstance(value, list) else "maxProperties")
            if most is None or not isinstance(value, list | dict) or len(value) <= most:
                yield from check(validator, parts, value, schema) or ()

        return unless_too_many

    rules = {rule: bounded(rule) for rule in ("items", "uniqueItems", "propertyNames", "additionalProperties")}
    checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer)
    return jsonschema.validators.extend(
        jsonschema.Draft202012Validator, {"pattern": whole_pattern, **rules}, type_checker=checker
    )


def _flaw(error: Any) -> Flaw:
    path = join_path(*(f"[{part}]" if isinstance(part, int) else str(part) for part in error.absolute_path))
    rule, schema, value = error.validator, error.schema, error.instance
    if rule in ("anyOf", "oneOf"):
        return _branch_flaw(error, path)
    if rule == "additionalProperties":
        known = list(schema.get("properties", {}))
        name = next(key for key in value if key not in known)
        near = nearest(str(name), known)
        return Flaw(join_path(path, str(name)), f"is not known; there are {', '.join(known)}", near, unknown=True)
    if rule == "required":
        missing = next(name for name in schema["required"] if name not in value)
        return Flaw(join_path(path, missing), "must be given")
    if rule == "enum":
        names = [str(each) for each in schema["enum"]]
        return Flaw(path, f"must be one of {', '.join(names)}, not {_shown(value)}", nearest(str(value), names))
    return Flaw(path, _sentence(rule, schema, value) or str(error.message)[:200])


def _branch_flaw(error: Any, path: str) -> Flaw:
    """Of alternatives, what is wrong by the one whose type the value has."""
    branches = error.schema[error.validator]
    of_type = [
        index
        for index, branch in enumerate(branches)
        if "type" in branch and _validator()({"type": branch["type"]}).is_valid(error.instance)
    ]
    if len(of_type) == 1:
        within = [each for each in error.context if each.schema_path[0] == of_type[0]]
        return _flaw(within[0])
    kinds = [_article(branch["type"]) for branch in branches if "type" in branch]
    return Flaw(path, f"must be {' or '.join(kinds)}, not {_shown(error.instance)}")


def _sentence(rule: str, schema: Mapping[str, Any], value: Any) -> str | None:
    limit = schema.get(rule)
    shown = _shown(value)
    sentences = {
        "type": f"must be {_article(str(limit))}, not {shown}",
        "minimum": f"must be at least {limit}, not {shown}",
        "maximum": f"must be at most {limit}, not {shown}",
        "minItems": f"must have at least {limit} entries",
        "maxItems": f"must have at most {limit} entries",
        "minProperties": f"must have at least {limit} entries",
        "maxProperties": f"must have at most {limit} entries",
        "minLength": "must not be empty",
        "maxLength": f"must have at most {limit} characters",
        "pattern": f"must be {schema.get('title', f'of the form {limit}')}, not {shown}",
        "uniqueItems": "has an entry twice",
    }
    return sentences.get(rule)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"


def _shown(value: Any) -> str:
    # Not `repr`: of a large value it would take long, and then be cut.
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _SHOWN
    text = short.repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
