"""Hostile code inside each kind of worker: what it tries, as root and as plain user, has no effect and an end.

Each behaviour runs in a process that has confined itself as a worker does. It prints HARM when it got what it wanted;
most raise, some are killed. The victim's side is checked where there is one: secrets unread, files unwritten,
processes alive, sockets silent.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Debian's own Python, which other users can read; the one that runs the tests may lie in root's home.
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534

PROLOGUE = """
import ctypes, os, signal, socket, struct, sys, time
from service.nouns import Confinement
from service.worker.sandbox import confine, missing
SECRET, VICTIM, PORT, UNIX = os.environ["SECRET"], int(os.environ["VICTIM"]), int(os.environ["PORT"]), os.environ["UNIX"]
uid = int(os.environ["BECOME"]) if "BECOME" in os.environ else None
libc = ctypes.CDLL(None, use_errno=True)
layers = confine(ROLE, Confinement(256 << 20, 2, 1 << 20, os.getcwd(), ("slot",), uid), os.getppid())
assert not missing(layers), layers
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def harm(): print("HARM", flush=True)
"""

# name: code. It prints HARM, or raises, or is killed.
BEHAVIOURS = {
    # files
    "read a secret": "open(SECRET).read(); harm()",
    "read the password file": "open('/etc/shadow').read(); harm()",
    "read the user list": "open('/etc/passwd').read(); harm()",
    "read the server's code": "open(os.environ['PYTHONPATH'] + '/service/nouns.py').read(); harm()",
    "list the server's folder": "os.listdir(os.environ['PYTHONPATH']); harm()",
    "list the root folder": "os.listdir('/'); harm()",
    "list the folder above": "os.listdir('..'); harm()",
    "read through a symlink": "os.symlink(SECRET, 'link'); open('link').read(); harm()",
    "read through a hard link": "os.link(SECRET, 'link'); open('link').read(); harm()",
    "read by openat2": "call(437, -100, SECRET.encode(), struct.pack('<QQQ', 0, 0, 0), 24); harm()",
    "read by a file handle": "call(303, -100, SECRET.encode(), ctypes.create_string_buffer(128), ctypes.byref(ctypes.c_int()), 0); harm()",
    "read the victim's environment": "open(f'/proc/{VICTIM}/environ').read(); harm()",
    "read the victim's memory": "open(f'/proc/{VICTIM}/mem', 'rb').seek(4096); harm()",
    "read the victim's open files": "os.listdir(f'/proc/{VICTIM}/fd'); harm()",
    "read the kernel's log": "open('/dev/kmsg').read(1); harm()",
    "read the disk": "open('/dev/vda', 'rb').read(1); harm()",
    "write to the temporary folder": "open('/tmp/relaxd-harm', 'w').write('x'); harm()",
    "write over a secret": "open(SECRET, 'w').write('x'); harm()",
    "make a file in its folder": "open('new', 'w').write('x'); harm()",
    "make a folder": "os.mkdir('new'); harm()",
    "make a device": "os.mknod('new', 0o600 | 0o020000, os.makedev(1, 3)); harm()",
    "make a pipe with a name": "os.mkfifo('new'); harm()",
    "remove a file": "os.unlink('slot'); harm()",
    "rename a file": "os.rename('slot', 'other'); harm()",
    "change a secret's mode": "os.chmod(SECRET, 0o777); harm()",
    "change a secret's owner": "os.chown(SECRET, 1, 1); harm()",
    "change a secret's times": "os.utime(SECRET, (0, 0)); harm()",
    "truncate a secret": "os.truncate(SECRET, 0); harm()",
    "set an attribute": "os.setxattr('slot', 'user.x', b'y'); harm()",
    "leave its folder": "os.chdir('/'); harm()",
    # network
    "connect by TCP": "socket.create_connection(('127.0.0.1', PORT), 2).send(b'x'); harm()",
    "listen on TCP": "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); harm()",
    "send by UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT)); harm()",
    "connect by IPv6": "socket.socket(socket.AF_INET6).connect(('::1', PORT)); harm()",
    "connect to a Unix socket": "socket.socket(socket.AF_UNIX).connect(UNIX); harm()",
    "connect to an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0relaxd-battery'); harm()",
    "make a pair of sockets": "socket.socketpair(); harm()",
    "open a netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); harm()",
    "open a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); harm()",
    "open a vsock": "socket.socket(40, socket.SOCK_STREAM); harm()",
    "ask a name server": "socket.getaddrinfo('example.com', 80); harm()",
    # processes
    "fork": "os.fork(); harm()",
    "vfork": "call(58); harm()",
    "clone3": "call(435, ctypes.create_string_buffer(88), 88); harm()",
    "exec a shell": "os.execv('/bin/sh', ['sh', '-c', 'echo HARM']); harm()",
    "exec from memory": "call(322, call(319, b'x', 0), b'', 0, 0, 0x1000); harm()",
    "run a program": "import subprocess; subprocess.run(['/bin/echo', 'HARM'])",
    "kill the victim": "os.kill(VICTIM, signal.SIGKILL); harm()",
    "kill everybody": "os.kill(-1, signal.SIGKILL); harm()",
    "stop its parent": "os.kill(os.getppid(), signal.SIGSTOP); harm()",
    "signal by a pidfd": "signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGKILL); harm()",
    "queue a signal": "call(129, VICTIM, 9, ctypes.create_string_buffer(128)); harm()",
    "trace the victim": "call(101, 16, VICTIM, 0, 0); harm()",
    "read memory of the victim": "call(310, VICTIM, 0, 0, 0, 0, 0); harm()",
    "take a file of the victim": "call(438, os.pidfd_open(VICTIM), 0, 0); harm()",
    "raise its priority": "os.nice(-5); harm()",
    "become root": "os.setresuid(0, 0, 0); open('/etc/shadow').read(); harm()",
    "give itself capabilities": "call(126, struct.pack('<Ii', 0x20080522, 0), b'\\xff' * 24); harm()",
    "raise its limits": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100000, 100000)); harm()",
    "limit the victim": "import resource; resource.prlimit(VICTIM, resource.RLIMIT_CPU, (1, 1)); harm()",
    # the kernel
    "mount": "call(165, b'none', b'/tmp', b'tmpfs', 0, 0); harm()",
    "enter a namespace": "call(308, 3, 0); harm()",
    "make a user namespace": "call(272, 0x10000000); harm()",
    "change the root folder": "os.chroot('/tmp'); harm()",
    "use a key ring": "call(250, 0, -3, 1, 0, 0); harm()",
    "use io_uring": "call(425, 8, ctypes.create_string_buffer(120)); harm()",
    "load a BPF program": "call(321, 5, ctypes.create_string_buffer(128), 128); harm()",
    "count events": "call(298, ctypes.create_string_buffer(112), 0, -1, -1, 0); harm()",
    "catch page faults": "call(323, 0); harm()",
    "load a module": "call(175, 0, 0, b''); harm()",
    "set the clock": "time.clock_settime(time.CLOCK_REALTIME, 0); harm()",
    "reboot": "call(169, 0xfee1dead, 672274793, 0x01234567, 0); harm()",
    "call by the x32 numbers": "call(0x40000000 + 39); harm()",
    "push into a terminal": "import fcntl; fcntl.ioctl(1, 0x5412, b'x'); harm()",
    "turn off the filter": "call(317, 1, 0, 0); harm()",
    "let its memory be dumped": "libc.prctl(4, 1, 0, 0, 0) == 0 and harm(); sys.exit(1)",
    "outlive its parent": "libc.prctl(1, 0, 0, 0, 0) == 0 and harm(); sys.exit(1)",
    # resources
    "fill the memory": "x = [bytearray(16 << 20) for _ in range(64)]; harm()",
    "fill the disk": "f = os.open('slot', os.O_WRONLY)\nfor _ in range(64): os.write(f, bytes(1 << 20))\nharm()",
    "fill the table of files": "x = [os.open('slot', os.O_RDONLY) for _ in range(1000)]; harm()",
    "start many threads with much memory": "import threading\nfor _ in range(10000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nharm()",
    "ignore signals and burn time": "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
}  # fmt: skip


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    """A process to harm, a secret to read, and sockets to reach."""
    folder = tmp_path_factory.mktemp("victim")
    folder.chmod(0o755)
    (folder / "secret").write_text("a secret")
    (folder / "secret").chmod(0o644)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    listener = socket.create_server(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(folder / "socket"))
    local.listen()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0relaxd-battery")
    abstract.listen()
    environment = {
        "SECRET": str(folder / "secret"),
        "VICTIM": str(process.pid),
        "PORT": str(listener.getsockname()[1]),
        "UNIX": str(folder / "socket"),
        "PATH": os.environ["PATH"],
    }
    yield process, folder / "secret", environment
    assert process.poll() is None, "the victim was killed"
    process.kill()
    process.wait()
    for sock in (listener, local, abstract):
        sock.close()


# The link worker may start a process: the linker. What it starts is under the same filter and the same rules.
MAY = {"link": ("fork", "vfork")}


def situations() -> list[tuple[str, str, str]]:
    """Behaviour, role, identity. Where the tests are not run by root, there is only one identity."""
    pairs = [("compile", "as it is"), ("infer", "as it is"), ("link", "as it is")]
    if os.geteuid() == 0 and Path(SYSTEM_PYTHON).exists():
        pairs += [("compile", "plain user"), ("infer", "root that becomes nobody")]
    return [(name, role, identity) for role, identity in pairs for name in BEHAVIOURS if name not in MAY.get(role, ())]


@pytest.fixture(scope="module")
def readable_code(tmp_path_factory):
    """The sandbox's code where every user can read it."""
    folder = tmp_path_factory.mktemp("code")
    for parent in (folder, *folder.parents):
        if parent == parent.parent or not str(parent).startswith("/tmp/pytest-of"):
            break
        parent.chmod(0o755)
    subprocess.run(["cp", "-r", str(ROOT / "service"), str(folder)], check=True)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


@pytest.mark.parametrize(("name", "role", "identity"), situations())
def test_hostile_code_in_a_worker_has_no_effect(victim, readable_code, tmp_path, name, role, identity):
    process, secret, environment = victim
    python = sys.executable if identity == "as it is" else SYSTEM_PYTHON
    uid = None if identity == "as it is" else NOBODY
    slot = tmp_path / "slot"
    slot.touch()
    if uid is not None:
        os.chown(slot, uid, uid)
        for parent in (tmp_path, *tmp_path.parents[:2]):
            parent.chmod(0o755)
    if identity == "root that becomes nobody":
        environment = {**environment, "BECOME": str(uid)}
    before = secret.stat()
    done = subprocess.run(
        [python, "-c", PROLOGUE.replace("ROLE", repr(role)) + textwrap.dedent(BEHAVIOURS[name])],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(readable_code)},
        capture_output=True,
        check=False,
        timeout=120,
        user=uid if identity == "plain user" else None,
    )
    assert b"HARM" not in done.stdout, done.stdout
    assert done.returncode != 0
    assert b"AssertionError" not in done.stderr, done.stderr
    assert b"No module named" not in done.stderr, done.stderr
    after = secret.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime, after.st_size) == (
        before.st_mode,
        before.st_uid,
        before.st_mtime,
        before.st_size,
    )
    assert secret.read_text() == "a secret"
    assert process.poll() is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slot"]
    assert slot.stat().st_size <= 1 << 20
    assert not Path("/tmp/relaxd-harm").exists()


def test_hostile_calls_are_noticed_by_the_death_that_they_bring(victim, readable_code, tmp_path):
    """Calls that nothing honest makes kill with SIGSYS, which the server reports as a crash of that worker."""
    _, _, environment = victim
    (tmp_path / "slot").touch()
    for name in ("trace the victim", "use io_uring", "load a BPF program", "mount", "call by the x32 numbers"):
        done = subprocess.run(
            [sys.executable, "-c", PROLOGUE.replace("ROLE", "'infer'") + BEHAVIOURS[name]],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(readable_code)},
            check=False,
            capture_output=True,
        )
        assert done.returncode == -signal.SIGSYS, (name, done)
