"""Names in files: PyTorch pastes many of them into Python source that it then runs."""

from __future__ import annotations

import keyword
import re

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
# Between double quotes in generated code these are only characters; a quote or a backslash would end the string.
_PATH = re.compile(r"[A-Za-z0-9_.\-/:+ <>@=,]{0,1000}")


def is_plain_name(name: object) -> bool:
    """Whether `name` is an ASCII identifier that can only be a name where it is pasted."""
    return (
        isinstance(name, str)
        and _PLAIN.fullmatch(name) is not None
        and not keyword.iskeyword(name)
        and not (name.startswith("__") and name.endswith("__"))
    )


def is_plain_path(path: object) -> bool:
    """Whether `path` can be the dotted name of a parameter or module: no part of it is a dunder or ends a string."""
    return (
        isinstance(path, str)
        and _PATH.fullmatch(path) is not None
        and not any(part.startswith("__") and part.endswith("__") and part for part in path.split("."))
    )
