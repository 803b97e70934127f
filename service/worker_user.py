"""Whom workers run as."""

from __future__ import annotations

import functools
import os
import stat
import sys
import sysconfig
from pathlib import Path

# Nobody's user, as everywhere.
NOBODY = 65534


@functools.cache
def worker_uid() -> int | None:
    """The user that workers of a root server become; None when they stay who they are.

    They stay when the server is not root, and when Python or its packages lie where other users cannot read (such as
    root's home): a worker that cannot import what it needs is of no use. They give up all capabilities in any case.
    """
    if os.geteuid() != 0:
        return None
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return NOBODY if all(_readable_by_all(Path(folder)) for folder in [*folders, sys.base_prefix]) else None


def _readable_by_all(folder: Path) -> bool:
    resolved = folder.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (resolved, *resolved.parents))
