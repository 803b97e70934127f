"""The zygote: imports what its roles need once, then forks one confined worker a request.

``python -m service.worker ZYGOTE CONTROL_FD [--allow-weak-sandbox]``, where ZYGOTE is ``compile`` (torch and tvm) or
``infer`` (tvm without torch, for the roles ``infer`` and ``link``). It announces itself by one line of JSON on standard
output. The control socket (SOCK_SEQPACKET) carries ``{"op": "fork", "worker", "role", "confinement"}`` with the
worker's socket and what else is for it attached, answered by ``{"op": "forked", "worker", "pid"}`` with a pidfd
attached, and later ``{"op": "exited", "worker", "status"}``. When the control socket closes, the zygote kills all its
workers and ends.

It stays single-threaded (its environment says one thread to every library) and runs no kernel: a child forked after
torch or tvm has started threads can hang.

``python -m service.worker probe`` prints which layers of the sandbox work here, by role.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

from service.errors import JsonObject
from service.nouns import Confinement
from service.worker.sandbox import POLICIES, confine, missing
from service.worker_user import worker_uid

MAX_PACKET = 65536

# What is passed with a fork: the worker's socket, and the three descriptors of a ring.
MAX_DESCRIPTORS = 4

Work = Callable[[socket.socket, list[int]], None]


def main(arguments: list[str]) -> None:
    """Runs the zygote until its control socket closes, or the probe."""
    if arguments == ["probe"]:
        sys.stdout.write(json.dumps({role: probe(role) for role in POLICIES}) + "\n")
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(arguments[1]))
    roles, announcement = _load(arguments[0])
    sys.stdout.write(json.dumps(announcement) + "\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    Zygote(control, roles, allow_weak="--allow-weak-sandbox" in arguments).run()


def _load(zygote: str) -> tuple[dict[str, Work], JsonObject]:
    if zygote == "compile":
        from service.worker import compiling

        return {"compile": compiling.work}, compiling.announcement()
    if zygote == "infer":
        sys.modules["torch"] = None  # type: ignore[assignment]  # import tvm would import it
        from service.worker import inferring, linking

        return {"infer": inferring.work, "link": linking.work}, {}
    raise SystemExit(f"relaxd has no zygote {zygote!r}")


def probe(role: str) -> dict[str, str]:
    """The layers of the sandbox that a worker of this role would have, by confining a child."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            layers = confine(role, Confinement(1 << 30, 60, 0, uid=worker_uid()), parent)
        except OSError as error:
            layers = {"limits": f"off: {error}"}
        os.write(writer, json.dumps(layers).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found: dict[str, str] = json.loads(pipe.read() or b"{}")
    os.waitpid(pid, 0)
    return found


class Zygote:
    """The loop that forks workers and reaps them."""

    def __init__(self, control: socket.socket, roles: dict[str, Work], *, allow_weak: bool) -> None:
        self._control = control
        self._roles = roles
        self._allow_weak = allow_weak
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
        data, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET, MAX_DESCRIPTORS)
        if not data:
            return False
        request = json.loads(data)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(request, descriptors, parent)
        for descriptor in descriptors:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = (request["worker"], pid)
        self._selector.register(pidfd, selectors.EVENT_READ)
        self._send({"op": "forked", "worker": request["worker"], "pid": pid}, [pidfd])
        return True

    def _become_worker(self, request: JsonObject, descriptors: list[int], parent: int) -> NoReturn:
        status = 1
        try:
            os.setsid()
            self._selector.close()
            self._control.close()
            for pidfd in self._children:
                os.close(pidfd)
            work = self._roles[request["role"]]
            layers = confine(request["role"], Confinement.from_json(request["confinement"]), parent)
            if missing(layers) and not self._allow_weak:
                raise OSError(f"required layers of the sandbox are missing: {missing(layers)}")
            # From here on it speaks to the web process only; what it writes to a log could fill a disk.
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            with socket.socket(fileno=descriptors[0]) as peer:
                work(peer, descriptors[1:])
            status = 0
        except (BrokenPipeError, ConnectionResetError):
            pass  # The web process went away or gave this job up; there is nobody to tell.
        except BaseException as error:  # noqa: BLE001  a worker must never return into the zygote's loop
            sys.stderr.write(f"a {request['role']} worker ended by {type(error).__name__}: {error}\n")
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
    main(sys.argv[1:])
