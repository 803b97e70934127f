"""Workers that have lost their zygote: somebody must reap them, and only process 1 inherits them."""

from __future__ import annotations

import asyncio
import contextlib
import os


def reap_orphan(pidfd: int) -> None:
    """Reaps a worker that has lost its zygote, when it ends, and closes the pidfd.

    In a container the server is process 1, and nobody else would do it; elsewhere it is no child, and init reaps it.
    """
    loop = asyncio.get_running_loop()

    def reap() -> None:
        loop.remove_reader(pidfd)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        os.close(pidfd)

    loop.add_reader(pidfd, reap)
