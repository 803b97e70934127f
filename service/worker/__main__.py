"""The zygote: imports what its role needs once, then forks one confined worker a request.

``python -m service.worker ROLE CONTROL_FD`` with role ``compile`` (torch and tvm) or ``infer`` (tvm without torch).
It announces itself by one line of JSON on standard output. The control socket (SOCK_SEQPACKET) carries
``{"op": "fork", "worker", "confinement"}`` with the worker's socket attached, answered by ``{"op": "forked",
"worker", "pid"}`` with a pidfd attached, and later ``{"op": "exited", "worker", "status"}``. When the control
socket closes, the zygote kills all its workers and ends.

It stays single-threaded (its environment says one thread to every library) and runs no kernel: a child forked after
torch or tvm has started threads can hang.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from typing import Any, NoReturn

from service.errors import JsonObject
from service.nouns import Confinement
from service.worker.sandbox import confine

MAX_PACKET = 65536


def main(role: str, control_fd: int) -> None:
    """Runs the zygote of `role` until its control socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    if role == "compile":
        from service.worker import compiling as module
    elif role == "infer":
        sys.modules["torch"] = None  # type: ignore[assignment]  # import tvm would import it
        from service.worker import inferring as module  # type: ignore[no-redef]
    else:
        raise SystemExit(f"relaxd has no worker role {role!r}")
    sys.stdout.write(json.dumps(module.announcement()) + "\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    Zygote(control, module).run()


class Zygote:
    """The loop that forks workers and reaps them."""

    def __init__(self, control: socket.socket, module: Any) -> None:
        self._control = control
        self._module = module
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: dict[int, tuple[int, int]] = {}  # pidfd -> worker number, pid

    def run(self) -> None:
        """Serves fork requests until the control socket closes; then kills what is left."""
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is not self._control:
                        self._reap(key.fd)
                    elif not self._serve():
                        return
        finally:
            for pidfd in list(self._children):
                self._reap(pidfd)

    def _serve(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET, 1)
        if not data:
            return False
        request = json.loads(data)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(request, descriptors[0], parent)
        os.close(descriptors[0])
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = (request["worker"], pid)
        self._selector.register(pidfd, selectors.EVENT_READ)
        self._send({"op": "forked", "worker": request["worker"], "pid": pid}, [pidfd])
        return True

    def _become_worker(self, request: JsonObject, descriptor: int, parent: int) -> NoReturn:
        status = 1
        try:
            os.setsid()
            confine(Confinement(**request["confinement"]), parent)
            self._selector.close()
            self._control.close()
            for pidfd in self._children:
                os.close(pidfd)
            with socket.socket(fileno=descriptor) as peer:
                self._module.work(peer)
            status = 0
        except (BrokenPipeError, ConnectionResetError):
            pass  # The web process went away or gave this job up; there is nobody to tell.
        finally:
            sys.stderr.flush()
            # Without the interpreter's shutdown: its exit handlers belong to the zygote.
            os._exit(status)

    def _reap(self, pidfd: int) -> None:
        worker, pid = self._children.pop(pidfd)
        self._selector.unregister(pidfd)
        # The zombie still holds its pid, so this can only reach what the worker started (its session's group).
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        with contextlib.suppress(OSError):
            self._send({"op": "exited", "worker": worker, "status": os.waitstatus_to_exitcode(status)}, [])

    def _send(self, message: JsonObject, descriptors: list[int]) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
