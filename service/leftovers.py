"""Files that are not needed any more: deleted now, or as soon as the disk lets it."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

log = logging.getLogger(__name__)

_left: set[Path] = set()
_lock = threading.Lock()


def remove(*paths: Path) -> None:
    """Deletes files, and folders with all that is in them, where they are there; in any thread.

    Never raises OSError: what cannot be deleted costs room and nothing else, and is tried again with the next call.
    """
    with _lock:
        tried = {*_left, *paths}
        _left.clear()
    for path in tried:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be deleted now: %s", path, error.strerror)
            with _lock:
                _left.add(path)
