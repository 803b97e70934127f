"""What a worker process gives up before it touches anything uploaded.

The kernel enforces all of it, and none of it can be taken back. In order: a session of its own without terminal and
inherited files, namespaces where they are allowed, another user and no capabilities where the server is root, resource
limits, no core dumps, death with the zygote, no gain of privileges, Landlock, seccomp. Each layer works without
privileges; `REQUIRED_LAYERS` are those without which a server does not start unless its operator says so.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import struct
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.nouns import REQUIRED_LAYERS, Confinement
from service.worker import landlock, seccomp
from service.worker.landlock import EXECUTE, READ, READ_FILE, WRITE, WRITE_FILE, Rule

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 1, 4, 38, 24
_CLONE_NEWUSER, _CLONE_NEWIPC, _CLONE_NEWNET = 0x10000000, 0x08000000, 0x40000000
_LAST_CAPABILITY = 63
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


# The dynamic loaders, which the kernel runs first for a program.
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")

# The standard library and the installed packages: not what `sys.path` says, which may be the server's own folder.
_PYTHON_FOLDERS = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(sys.base_prefix, "lib")),
)


@dataclass(frozen=True)
class Policy:
    """What a role may do beyond reading what Python needs: groups of system calls, and programs that it may become."""

    calls: tuple[str, ...]
    programs: tuple[str, ...] = ()


POLICIES = {
    # It computes, and writes its results into the files that were made for them.
    "compile": Policy(("core", "threads", "writing")),
    # It computes, and writes nothing.
    "infer": Policy(("core", "threads")),
    # It becomes one of two programs, which write and start nothing.
    "link": Policy(("core", "writing", "exec"), ("ld", "objdump")),
}


def confine(role: str, limits: Confinement, parent: int) -> dict[str, str]:
    """Confines this process for good; each layer with ``on`` or why not.

    `parent` is the pid of the zygote, whose death must end this process. The current folder becomes
    ``limits.work_dir``; of it only the files named in ``limits.writable``, made beforehand, can be written. Raises
    OSError when a layer that always works does not; a missing required layer is for the caller to judge.
    """
    os.chdir(limits.work_dir)
    policy = POLICIES[role]
    rules = _rules(policy, limits.writable)
    layers: dict[str, str] = {}
    layers["namespaces"] = _try(_unshare)
    layers["user"] = _give_up_user(limits.uid)
    layers["capabilities"] = _try(_give_up_capabilities)
    _set_limits(limits)
    layers["limits"] = "on"
    _prctl(_PR_SET_DUMPABLE, 0)
    # After the change of user, which would clear it.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The zygote died before the line above: nobody would end this process any more.
        os._exit(1)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    layers["no_new_privs"] = "on"
    layers["landlock"] = _try(lambda: landlock.restrict(rules))
    layers["seccomp"] = _try(lambda: seccomp.install(policy.calls))
    return layers


def missing(layers: dict[str, str]) -> dict[str, str]:
    """The required layers that are not on, and why."""
    return {name: layers.get(name, "unknown") for name in REQUIRED_LAYERS if not layers.get(name, "").startswith("on")}


def _try(layer: Callable[[], object]) -> str:
    try:
        layer()
    except (OSError, KeyError) as error:
        return f"off: {error}"
    return "on"


def _unshare() -> None:
    # As root without a user namespace: in one, the capabilities to give up would be new ones.
    flags = _CLONE_NEWNET | _CLONE_NEWIPC | (0 if os.geteuid() == 0 else _CLONE_NEWUSER)
    if _libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def _give_up_user(uid: int | None) -> str:
    if os.geteuid() != 0:
        return "on (the server is not root)"
    if uid is None:
        return "off: Python lies where only root can read, so workers stay root, without capabilities"
    for capability in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # beyond the last one that this kernel has
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    return "on"


def _give_up_capabilities() -> None:
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, bytes(24)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")


def _set_limits(limits: Confinement) -> None:
    # RLIMIT_DATA counts private writable memory, which RLIMIT_AS drowns in a gigabyte of mapped libraries.
    data = _private_bytes() + limits.memory_bytes
    _limit(resource.RLIMIT_DATA, data, data)
    # The soft limit sends SIGXCPU, which says why the process died; the hard one SIGKILL, should that be blocked.
    _limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes)
    _limit(resource.RLIMIT_NOFILE, 256, 256)
    _limit(resource.RLIMIT_CORE, 0, 0)


def _limit(kind: int, soft: int, hard: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _private_bytes() -> int:
    """What the kernel counts against RLIMIT_DATA now: the sixth field of statm is data plus stack, in pages."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def _rules(policy: Policy, writable: tuple[str, ...]) -> list[Rule]:
    """Libraries, devices and facts about the machine, the current folder, and the files made for results."""
    rules = [Rule(path, READ) for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")]
    rules += [Rule(path, READ) for path in _PYTHON_FOLDERS]
    # Not /dev/zero: mapped and shared, it is memory that no limit counts.
    rules.append(Rule("/dev/null", READ_FILE | WRITE_FILE))
    facts = (
        "/dev/urandom", "/dev/random", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/proc/self",
        "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/osrelease",
        "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage",
    )  # fmt: skip
    rules += [Rule(path, READ) for path in facts]
    if policy.programs:
        programs = [Path(shutil.which(name) or f"/usr/bin/{name}").resolve() for name in policy.programs]
        rules += [Rule(str(path), READ_FILE | EXECUTE) for path in (*programs, *_LOADERS)]
    rules.append(Rule(".", READ))
    return rules + [Rule(name, WRITE) for name in writable]
