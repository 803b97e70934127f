"""relaxd without a server of one's own: one is started for this process alone, and ends with it.

It listens on a Unix socket in a folder that nobody else may enter, so nothing of the machine or the network can reach
it. What it compiles is kept in a folder, so the same request is answered at once the next time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from relaxd.client import Client
from relaxd.errors import ServerUnreachable

# In place of a URL: a server of this process.
LOCAL = "local"
_STOP_S = 20


def data_folder() -> Path:
    """Where what is compiled locally is kept: ``RELAXD_DATA``, or ``relaxd`` in the user's folder of data."""
    named = os.environ.get("RELAXD_DATA")
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(named) if named else Path(share) / "relaxd"


@contextlib.contextmanager
def local_client(data: str | os.PathLike[str] | None = None) -> Iterator[Client]:
    """A Client of a server that runs for as long as the block; its data is in `data`, else in `data_folder`.

    Raises ServerUnreachable where the server is not installed beside the client, or does not start: one other process
    at a time may use the same data.
    """
    if importlib.util.find_spec("service") is None:
        raise ServerUnreachable(
            "relaxd itself is not installed beside its client, so nothing can be compiled locally: "
            "install it (in a checkout, pip install -e .), or give the URL of a server"
        )
    folder = Path(data) if data is not None else data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    # The path of a socket may not be longer than 107 bytes, so it does not lie in the data.
    with tempfile.TemporaryDirectory(prefix="relaxd-") as private:
        socket, log = Path(private) / "socket", Path(private) / "log"
        process = _start(socket, folder, log)
        try:
            _wait(process, log)
            with Client("http://localhost", transport=httpx.HTTPTransport(uds=str(socket))) as client:
                yield client
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _start(socket: Path, data: Path, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "service", "serve", "--socket", str(socket), "--data", str(data)]
    with log.open("w") as errors:
        # Its standard input ends with this process, however that ends. In a session of its own: Ctrl-C is for this one.
        return subprocess.Popen(  # noqa: S603 - relaxd's own server
            [*command, "--end-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[str], log: Path) -> None:
    for line in process.stdout or ():
        if line.startswith("relaxd listens on "):
            return
    said = log.read_text(errors="replace").strip().splitlines()
    raise ServerUnreachable(f"the local server did not start: {said[-1] if said else 'it said nothing'}")
