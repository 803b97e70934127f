"""The folder of one worker: what it may read, hard-linked from the store, and empty files for what it may write."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.errors import StorageFull
from service.full_disk import FULL_DISK
from service.leftovers import remove
from service.position import POSITION_FILE
from service.worker_user import worker_uid

# The files that a compile worker may write: the model rewritten, object files, and (the link worker) the library.
# Made beforehand, so that a worker can make no file of its own and their number is bounded.
LIBRARY = "model.so"
# One for each Compilation that a worker may be kept for.
LIBRARIES = (LIBRARY, *(f"model{number}.so" for number in range(1, 8)))
# The kernels: one file for each thread that makes them, and the archive of all.
KERNEL_OBJECTS = tuple(f"kernel{number}.o" for number in range(16))
KERNEL_ARCHIVE = "kernels.a"
# What a link worker's program prints.
PROGRAM_OUTPUT, PROGRAM_MESSAGES = PROGRAM_FILES = ("program.out", "program.err")
COMPILE_FILES = (
    *("model.pt2", "model.pt", "lib0.o", "lib1.o", "lib2.o", "lib3.o", "devc.o"),
    *(KERNEL_ARCHIVE, *KERNEL_OBJECTS, POSITION_FILE, *LIBRARIES, *PROGRAM_FILES),
)

_numbers = itertools.count()


@contextlib.contextmanager
def work_folder(scratch: Path, readable: Mapping[str, Path], writable: tuple[str, ...]) -> Iterator[Path]:
    """A new folder in `scratch`, removed in the end. Raises StorageFull, OSError.

    `readable` names what to link there. The writable files belong to the user that workers run as.
    """
    folder = scratch / f"work-{os.getpid()}-{next(_numbers)}"
    try:
        _fill(folder, readable, writable)
        yield folder.absolute()
    finally:
        remove(folder)


def _fill(folder: Path, readable: Mapping[str, Path], writable: tuple[str, ...]) -> None:
    try:
        folder.mkdir(mode=0o755)
        for name, source in readable.items():
            _link(source, folder / name)
        for name in writable:
            descriptor = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            uid = worker_uid()
            if uid is not None:
                os.fchown(descriptor, uid, uid)
            os.close(descriptor)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise StorageFull("The server's disk has no room for a worker's folder. Try again later.") from error
        raise


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        # A file system without hard links, or too many of them.
        shutil.copyfile(source, target)
        target.chmod(0o444)
