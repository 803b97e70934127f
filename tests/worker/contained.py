"""``python -m tests.worker.contained ROLE UID``: some of the hostile behaviours, from inside a container, and their victim.

It makes the victim in /data, runs the battery beside it, and prints the battery's lines and whether the victim is unharmed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from service.worker_user import worker_uid

# One or two of each kind: files, network, processes, the kernel, others' uploads, what stays, resources.
SOME = (
    "read a secret", "write to the temporary folder", "read another upload", "list the root folder", "connect by TCP",
    "connect to a Unix socket", "fork", "exec a shell", "kill the victim", "trace the victim", "mount",
    "make a user namespace", "use io_uring", "load a BPF program", "use a key ring", "read its parent's memory",
    "leave a file in shared memory", "fill the memory", "fill the disk", "ignore every signal and stay",
)  # fmt: skip


def main() -> None:
    """Runs them all."""
    folder = Path("/data/battery")
    sibling, folders = folder / "sibling", folder / "folders"
    for path in (folder, sibling, folders):
        path.mkdir(mode=0o755)
    secret = folder / "secret"
    for path in (secret, sibling / "model", sibling / "slot"):
        path.write_text("unharmed")
    listener = socket.create_server(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(folder / "socket"))
    local.listen()
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    environment = {
        **os.environ, "SECRET": str(secret), "SIBLING": str(sibling), "VICTIM": str(victim.pid), "FOLDERS": str(folders),
        "UNIX": str(folder / "socket"), "PORT": str(listener.getsockname()[1]), "BEHAVIOURS": json.dumps(SOME),
    }  # fmt: skip
    uid = worker_uid()
    command = [sys.executable, "-m", "tests.hostile.battery", sys.argv[1], *([] if uid is None else [str(uid)])]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    unharmed = victim.poll() is None and secret.read_text() == (sibling / "model").read_text() == "unharmed"
    unharmed &= not Path("/tmp/relaxd-harm").exists() and not Path("/dev/shm/relaxd-harm").exists()
    victim.kill()
    victim.wait()
    sys.stdout.write(done.stdout + json.dumps({"unharmed": unharmed}) + "\n")


if __name__ == "__main__":
    main()
