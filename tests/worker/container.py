"""``python -m tests.worker.container SPEC COMMAND…``: runs a command confined as an ordinary container of Docker is.

SPEC is JSON: ``data`` (a folder, mounted at /data), ``readable`` (folders that keep their paths), ``uid`` (0 keeps Docker's
default capabilities, another user has none), ``denied`` (more numbers of calls to refuse). Root only; x86-64.

As runc does it: namespaces for processes, mounts, network, IPC, host name and control groups; a root of its own with the
system's folders, read-only, and /tmp in memory; a /proc with Docker's masked and read-only paths, a read-only /sys, a small
/dev; capabilities; no_new_privs; the calls that the default seccomp profile refuses to a process without CAP_SYS_ADMIN. The
command becomes process 1, as there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import NoReturn

from tests.bpf import ALLOW, ENOSYS, EPERM, JEQ, JSET, LOAD, RETURN, argument, install, instruction

# What the profile does not allow without further capabilities (moby/profiles, seccomp/default.json), for x86-64.
DENIED = {
    "syslog": 103, "uselib": 134, "ustat": 136, "sysfs": 139, "vhangup": 153, "pivot_root": 155, "_sysctl": 156,
    "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
    "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "create_module": 174, "init_module": 175,
    "delete_module": 176, "get_kernel_syms": 177, "query_module": 178, "quotactl": 179, "nfsservctl": 180,
    "getpmsg": 181, "putpmsg": 182, "afs_syscall": 183, "tuxcall": 184, "security": 185, "lookup_dcookie": 212,
    "clock_settime": 227, "vserver": 236, "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "kexec_load": 246,
    "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272, "move_pages": 279,
    "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308, "kcmp": 312,
    "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "quotactl_fd": 443, "set_mempolicy_home_node": 450,
}  # fmt: skip
# Docker's default capabilities, by their numbers in linux/capability.h: chown, dac_override, fowner, fsetid, kill, setgid,
# setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap.
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
MASKED = (
    "acpi",
    "asound",
    "interrupts",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
)
READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000  # all but the user's
_ANY_NAMESPACE = 0x7E020000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: Path, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """As mount(2). Raises OSError."""
    encoded = [None if text is None else text.encode() for text in (source, str(target), kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], flags, encoded[3]), f"mount {target}")


def bind(source: str, target: Path, *, writable: bool = False) -> None:
    """Shows a folder or file at another place, read-only unless told otherwise."""
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, flags=_BIND | _REC)
    if not writable:
        mount("none", target, flags=_REMOUNT | _BIND | _RDONLY | _NOSUID)


def make_root(root: Path, data: str, readable: list[str]) -> None:
    """The container's file system, and this process in it."""
    mount("none", Path("/"), flags=_REC | _PRIVATE)
    mount("tmpfs", root, "tmpfs", _NOSUID, "mode=755")
    for folder in SYSTEM:
        if Path(folder).exists():
            bind(str(Path(folder).resolve()), root / folder[1:])
    for name, options in (("tmp", "mode=1777"), ("dev", "mode=755")):
        (root / name).mkdir()
        mount("tmpfs", root / name, "tmpfs", _NOSUID, options)
    for folder in readable:
        bind(folder, root / folder[1:])
    bind(data, root / "data", writable=True)
    for device in DEVICES:
        if Path("/dev", device).exists():
            bind(f"/dev/{device}", root / "dev" / device, writable=True)
    (root / "dev" / "shm").mkdir()
    mount("tmpfs", root / "dev" / "shm", "tmpfs", _NOSUID | _NODEV | _NOEXEC, "mode=1777,size=64m")
    for name in ("proc", "sys", "old"):
        (root / name).mkdir()
    mount("proc", root / "proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    mount("sysfs", root / "sys", "sysfs", _NOSUID | _NODEV | _NOEXEC | _RDONLY)
    close_kernel_files(root)
    os.chdir(root)
    _check(_libc.syscall(155, b".", b"old"), "pivot_root")
    os.chdir("/")
    _check(_libc.umount2(b"/old", 2), "umount2")
    with contextlib.suppress(OSError):
        Path("/old").rmdir()
    mount("none", Path("/"), flags=_REMOUNT | _BIND | _RDONLY | _NOSUID)


def close_kernel_files(root: Path) -> None:
    """What Docker masks in /proc, and what it makes read-only."""
    for name in MASKED:
        masked = root / "proc" / name
        if masked.is_dir():
            mount("tmpfs", masked, "tmpfs", _RDONLY)
        elif masked.exists():
            mount("/dev/null", masked, flags=_BIND)
    for name in READ_ONLY:
        path = root / "proc" / name
        if path.exists():
            mount(str(path), path, flags=_BIND | _REC)
            mount("none", path, flags=_REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | _NOEXEC)


def build_filter(denied: list[int]) -> bytes:
    """What the default profile refuses, and these."""
    program = [instruction(LOAD, 0)]
    for number in (*DENIED.values(), *denied):
        program += [instruction(JEQ, number, 0, 1), instruction(RETURN, EPERM)]
    # The flags of clone3 lie behind a pointer: the C library is told to use clone, and that may make no namespace.
    program += [instruction(JEQ, 435, 0, 1), instruction(RETURN, ENOSYS)]
    clone = [
        argument(0),
        instruction(JSET, _ANY_NAMESPACE, 0, 1),
        instruction(RETURN, EPERM),
        instruction(RETURN, ALLOW),
    ]
    program += [instruction(JEQ, 56, 0, len(clone)), *clone]
    # No vsock and no kernel cryptography; of personality only what is harmless.
    families = [argument(0)]
    for family in (38, 40):
        families += [instruction(JEQ, family, 0, 1), instruction(RETURN, EPERM)]
    program += [instruction(JEQ, 41, 0, len(families) + 1), *families, instruction(RETURN, ALLOW)]
    personas = [argument(0)]
    for persona in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF):
        personas += [instruction(JEQ, persona, 0, 1), instruction(RETURN, ALLOW)]
    program += [instruction(JEQ, 135, 0, len(personas) + 1), *personas, instruction(RETURN, EPERM)]
    return b"".join([*program, instruction(RETURN, ALLOW)])


def keep_capabilities(kept: tuple[int, ...]) -> None:
    """Gives up all others, for good."""
    for capability in range(64):
        if capability not in kept and _libc.prctl(24, capability, 0, 0, 0) != 0:
            break  # beyond the last one that this kernel has
    low = sum(1 << capability for capability in kept)
    header = struct.pack("<Ii", 0x20080522, 0)
    _check(_libc.capset(header, struct.pack("<6I", low, low, 0, 0, 0, 0)), "capset")


def become_the_container(spec: dict, command: list[str]) -> NoReturn:
    """Process 1: makes the root, gives up what a container has not, and becomes the command."""
    # With the process that has started it.
    _libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    root = Path(spec["data"]).parent / "root"
    root.mkdir(exist_ok=True)
    make_root(root, spec["data"], spec["readable"])
    os.chdir("/data")
    keep_capabilities(CAPABILITIES if spec["uid"] == 0 else (6, 7))
    if spec["uid"] != 0:
        os.setgroups([])
        os.setresgid(spec["uid"], spec["uid"], spec["uid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    install(build_filter(spec["denied"]))
    os.execv(command[0], command)


def main() -> None:
    """Runs the command and ends as it does."""
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    _check(_libc.unshare(_NAMESPACES), "unshare")
    pid = os.fork()
    if pid == 0:
        become_the_container(spec, command)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
