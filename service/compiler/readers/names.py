"""Names in files: PyTorch pastes many of them into Python source that it then runs."""

from __future__ import annotations

import keyword
import re
import unicodedata

# Between double quotes in generated code these are only characters; a quote or a backslash would end the string.
_PATH = re.compile(r"[\w.\-/:+ <>@=,]{0,1000}")


def _is_itself(name: str) -> bool:
    """Whether Python reads the name as it stands: it takes compatible letters, such as wide ones, for others."""
    return unicodedata.normalize("NFKC", name) == name


def is_plain_name(name: object) -> bool:
    """Whether `name` is an identifier, of letters of any script, that can only be a name where it is pasted."""
    return (
        isinstance(name, str)
        and len(name) <= 255
        and name.isidentifier()
        and _is_itself(name)
        and not keyword.iskeyword(name)
        and not (name.startswith("__") and name.endswith("__"))
    )


def is_plain_path(path: object) -> bool:
    """Whether `path` can be the dotted name of a parameter or module: no part of it is a dunder or ends a string."""
    return (
        isinstance(path, str)
        and _PATH.fullmatch(path) is not None
        and _is_itself(path)
        and not any(part.startswith("__") and part.endswith("__") and part for part in path.split("."))
    )
