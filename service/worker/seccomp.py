"""The system calls of a worker: a list of what it may call, as a BPF program; everything else is refused or kills.

The program is made by hand through ctypes, so that no library is needed in the process that it confines. Calling
conventions: seccomp(2), ``linux/seccomp.h``, ``linux/filter.h``. Numbers: the kernel's ``unistd_64.h`` (x86-64) and
``asm-generic/unistd.h`` (aarch64); tested on x86-64, reasoned for aarch64.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from dataclasses import dataclass

_SET_MODE_FILTER = 1
_FLAG_TSYNC = 1

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_EPERM, _ENOSYS = 1, 38

# BPF instructions: load a word of seccomp_data, jump on equal / greater-or-equal / any bit, return.
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH = 0, 4

_CLONE_THREAD = 0x00010000

_Calls = dict[str, tuple[int | None, int | None]]

# name: (x86-64, aarch64). None: that architecture has no such call.
_CORE: _Calls = {
    # the hot ones first: the program is searched from the top
    "futex": (202, 98), "read": (0, 63), "write": (1, 64), "munmap": (11, 215), "mprotect": (10, 226),
    "madvise": (28, 233), "brk": (12, 214), "recvfrom": (45, 207), "sendto": (44, 206), "recvmsg": (47, 212),
    "sendmsg": (46, 211), "clock_gettime": (228, 113), "mremap": (25, 216),
    # files that are open or that Landlock lets it open
    "open": (2, None), "openat": (257, 56), "close": (3, 57), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "newfstatat": (262, 79), "statx": (332, 291), "lseek": (8, 62), "pread64": (17, 67), "readv": (19, 65),
    "writev": (20, 66), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    # waiting
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, None),
    "restart_syscall": (219, 128),
    # the socket that it was given
    "shutdown": (48, 210), "getsockopt": (55, 209), "getsockname": (51, 204), "getpeername": (52, 205),
    # itself
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "exit": (60, 93), "exit_group": (231, 94), "set_robust_list": (273, 99), "rseq": (334, 293),
    "getrandom": (318, 278), "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "uname": (63, 160), "sysinfo": (99, 179),
    "getrlimit": (97, 163), "getrusage": (98, 165), "times": (100, 153), "sched_getaffinity": (204, 123),
}  # fmt: skip

# Threads, for the workers that compute. Starting one is `clone`, which depends on its flags.
_THREADS: _Calls = {
    "sched_yield": (24, 124), "set_tid_address": (218, 96), "get_robust_list": (274, 100), "membarrier": (324, 283),
    "getcpu": (309, 168), "sched_setaffinity": (203, 122), "sched_getscheduler": (145, 120),
    "sched_getparam": (143, 121), "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "getpriority": (140, 141), "mincore": (27, 232),
}  # fmt: skip

# Writing to the files that were made for it, for the workers that have any.
_WRITING: _Calls = {
    "pwrite64": (18, 68), "ftruncate": (77, 46), "fsync": (74, 82), "fdatasync": (75, 83), "fallocate": (285, 47),
    "copy_file_range": (326, 285), "sendfile": (40, 71), "umask": (95, 166), "msync": (26, 227),
}  # fmt: skip

# Becoming another program, for the link worker only: the call, and what a C library does when it starts.
_EXEC: _Calls = {"execve": (59, 221), "arch_prctl": (158, None), "set_tid_address": (218, 96)}

GROUPS = {"core": _CORE, "threads": _THREADS, "writing": _WRITING, "exec": _EXEC}

# Nothing honest in a worker calls these: the process is killed, and its death is noticed.
_HOSTILE: _Calls = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "bpf": (321, 280), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "setns": (308, 268), "unshare": (272, 97), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "pidfd_getfd": (438, 438), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "iopl": (172, None), "ioperm": (173, None),
    "personality": (135, 92), "syslog": (103, 116), "fanotify_init": (300, 262), "lookup_dcookie": (212, 18),
}  # fmt: skip

_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_TCGETS, _FIOCLEX = 0x5401, 0x5451
# Not FIONBIO and F_SETFL: the flags of an eventfd belong to the web process too, which must never block at one.
_F_SETFL = 4
_PR_SET_NAME, _PR_GET_NAME = 15, 16


@dataclass(frozen=True)
class _Architecture:
    column: int
    audit: int
    seccomp: int
    mmap: int
    clone: int
    clone3: int
    kill: int
    tgkill: int
    tkill: int
    ioctl: int
    fcntl: int
    prctl: int
    prlimit64: int


_ARCHITECTURES = {
    "x86_64": _Architecture(0, 0xC000003E, 317, 9, 56, 435, 62, 234, 200, 16, 72, 157, 302),
    "aarch64": _Architecture(1, 0xC00000B7, 277, 222, 220, 435, 129, 131, 130, 29, 25, 167, 261),
}


def _instruction(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, k)


def _argument(index: int) -> int:
    """Where the low half of an argument stands in seccomp_data; both architectures are little-endian."""
    return 16 + 8 * index


def _return_if(number: int, verdict: int) -> list[bytes]:
    return [_instruction(_JEQ, number, 0, 1), _instruction(_RETURN, verdict)]


def _if_argument(number: int, index: int, allowed: list[int], otherwise: int) -> list[bytes]:
    """For one call: allowed when its argument is one of a few values."""
    body = [_instruction(_LOAD, _argument(index))]
    for value in allowed:
        body += _return_if(value & 0xFFFFFFFF, _ALLOW)
    body.append(_instruction(_RETURN, otherwise))
    return [_instruction(_JEQ, number, 0, len(body)), *body]


def _unless_argument(number: int, index: int, refused: int, verdict: int) -> list[bytes]:
    """For one call: allowed but when its argument is one value."""
    body = [_instruction(_LOAD, _argument(index)), *_return_if(refused, verdict), _instruction(_RETURN, _ALLOW)]
    return [_instruction(_JEQ, number, 0, len(body)), *body]


def build_filter(machine: str, groups: tuple[str, ...], pid: int) -> bytes:
    """The BPF program for this architecture and process, which may call what is in these `GROUPS`.

    Raises KeyError for an architecture that is not known.
    """
    arch = _ARCHITECTURES[machine]
    refuse = _ERRNO | _EPERM
    program = [
        _instruction(_LOAD, _ARCH),
        _instruction(_JEQ, arch.audit, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        # The x32 ABI has numbers of its own for the same calls.
        program += [_instruction(_JGE, 0x40000000, 0, 1), _instruction(_RETURN, _KILL)]
    program += _private_memory(arch)
    tables = [*((GROUPS[group], _ALLOW) for group in groups), (_HOSTILE, _KILL)]
    for table, verdict in tables:
        for numbers in table.values():
            number = numbers[arch.column]
            if number is not None:
                program += _return_if(number, verdict)
    if "threads" in groups:
        program += _threads_only(arch)
    # The flags lie behind a pointer, which a filter cannot follow. ENOSYS makes the C library use clone.
    program += _return_if(arch.clone3, _ERRNO | _ENOSYS)
    # Signals to itself, as abort() sends them; never to another process.
    for number in (arch.kill, arch.tgkill):
        program += _if_argument(number, 0, [pid], refuse)
    program += _if_argument(arch.ioctl, 1, [_TCGETS, _FIOCLEX], refuse)
    program += _unless_argument(arch.fcntl, 1, _F_SETFL, refuse)
    program += _if_argument(arch.prctl, 0, [_PR_SET_NAME, _PR_GET_NAME], refuse)
    # Of itself only; raising a hard limit needs a capability that it does not have.
    program += _if_argument(arch.prlimit64, 0, [0, pid], refuse)
    program.append(_instruction(_RETURN, refuse))
    return b"".join(program)


def _private_memory(arch: _Architecture) -> list[bytes]:
    """Memory that is shared and belongs to no file is counted by no limit of a process: it cannot be had."""
    body = [
        _instruction(_LOAD, _argument(3)),
        _instruction(_JSET, _MAP_ANONYMOUS, 1, 0),
        _instruction(_RETURN, _ALLOW),
        _instruction(_JSET, _MAP_SHARED, 1, 0),
        _instruction(_RETURN, _ALLOW),
        _instruction(_RETURN, _ERRNO | _EPERM),
    ]
    return [_instruction(_JEQ, arch.mmap, 0, len(body)), *body]


def _threads_only(arch: _Architecture) -> list[bytes]:
    body = [
        _instruction(_LOAD, _argument(0)),
        _instruction(_JSET, _CLONE_THREAD, 0, 1),
        _instruction(_RETURN, _ALLOW),
        _instruction(_RETURN, _ERRNO | _EPERM),
    ]
    return [_instruction(_JEQ, arch.clone, 0, len(body)), *body]


def install(groups: tuple[str, ...]) -> None:
    """Puts all threads of this process under the filter, for good, also as another program. Raises OSError, KeyError.

    no_new_privs must be set.
    """
    machine = platform.machine()
    program = build_filter(machine, groups, os.getpid())
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    prog = ctypes.create_string_buffer(header, len(header))
    libc = ctypes.CDLL(None, use_errno=True)
    number = _ARCHITECTURES[machine].seccomp
    if libc.syscall(number, _SET_MODE_FILTER, _FLAG_TSYNC, ctypes.byref(prog)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"seccomp: {os.strerror(error)}")
