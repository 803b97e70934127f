"""The filter of system calls, run by an interpreter of BPF: what each call gets, on both architectures."""

from __future__ import annotations

import struct

import pytest

from service.worker.sandbox import POLICIES
from service.worker.seccomp import GROUPS, build_filter

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PID = 4242


def verdict(machine: str, number: int, *arguments: int, role: str = "infer", audit: int | None = None) -> int:
    """What the filter returns for one call; BPF as in linux/filter.h, the few instructions that it uses."""
    program = build_filter(machine, POLICIES[role].calls, PID)
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, AUDIT[machine] if audit is None else audit, 0, *padded)
    accumulator, at = 0, 0
    for _ in range(len(program)):
        code, if_true, if_false, k = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif code == 0x06:
            return k
        else:
            holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[code]
            at += if_true if holds else if_false
    raise AssertionError("the program does not end")


# name: numbers on x86-64 and aarch64, from the kernel's tables
CALLS = {
    "read": (0, 63), "write": (1, 64), "mmap": (9, 222), "futex": (202, 98), "openat": (257, 56), "close": (3, 57),
    "clock_gettime": (228, 113), "exit_group": (231, 94), "getpid": (39, 172),
}  # fmt: skip
REFUSED = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "execve": (59, 221), "memfd_create": (319, 279),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "mkdirat": (258, 34), "unlinkat": (263, 35),
    "fchmodat": (268, 53), "setrlimit": (160, 164), "setresuid": (117, 147), "capset": (126, 91), "landlock": (444, 444),
    "seccomp": (317, 277), "setxattr": (188, 5), "nice": (141, 140),
}  # fmt: skip
HOSTILE = {
    "ptrace": (101, 117),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "mount": (165, 40),
    "keyctl": (250, 219),
}


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_each_kind_of_call_gets_its_verdict(machine, column):
    for name, numbers in CALLS.items():
        assert verdict(machine, numbers[column]) == ALLOW, name
    for name, numbers in REFUSED.items():
        assert verdict(machine, numbers[column]) == EPERM, name
    for name, numbers in HOSTILE.items():
        assert verdict(machine, numbers[column]) == KILL, name
    assert verdict(machine, 9999) == EPERM


@pytest.mark.parametrize(("machine", "clone", "kill", "prlimit"), [("x86_64", 56, 62, 302), ("aarch64", 220, 129, 261)])
def test_some_calls_depend_on_their_arguments(machine, clone, kill, prlimit):
    assert verdict(machine, clone, 0x00010000 | 0x100) == ALLOW
    assert verdict(machine, clone, 17) == EPERM
    assert verdict(machine, 435) == ENOSYS
    assert verdict(machine, kill, PID, 6) == ALLOW
    for other in (1, PID + 1, 2**32 - 1, 0):
        assert verdict(machine, kill, other, 9) == EPERM
    assert verdict(machine, prlimit, 0) == ALLOW
    assert verdict(machine, prlimit, 1) == EPERM


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_each_role_may_do_what_it_needs_and_no_other_s_work(machine, column):
    writes, clone, execve = (18, 68)[column], (56, 220)[column], (59, 221)[column]
    thread, process = 0x00010000 | 0x100, 17
    may = {
        role: (
            verdict(machine, writes, role=role) == ALLOW,
            verdict(machine, clone, thread, role=role) == ALLOW,
            verdict(machine, execve, role=role) == ALLOW,
        )
        for role in POLICIES
    }
    assert may == {"compile": (True, True, False), "infer": (False, True, False), "link": (True, False, True)}
    for role in POLICIES:
        assert verdict(machine, clone, process, role=role) == EPERM
        for name, numbers in {**REFUSED, **HOSTILE}.items():
            if name != "execve":
                assert verdict(machine, numbers[column], role=role) != ALLOW, (role, name)


@pytest.mark.parametrize(("machine", "mmap"), [("x86_64", 9), ("aarch64", 222)])
def test_memory_is_private_or_belongs_to_a_file(machine, mmap):
    shared, private, anonymous, validate = 0x01, 0x02, 0x20, 0x03
    for flags in (private, shared, private | anonymous, validate):
        assert verdict(machine, mmap, 0, 4096, 3, flags) == ALLOW, flags
    for flags in (shared | anonymous, validate | anonymous, shared | anonymous | 0x40000):
        assert verdict(machine, mmap, 0, 4096, 3, flags) == EPERM, flags


@pytest.mark.parametrize(("machine", "fcntl", "ioctl"), [("x86_64", 72, 16), ("aarch64", 25, 29)])
def test_the_flags_of_a_shared_eventfd_stay_as_the_server_has_set_them(machine, fcntl, ioctl):
    assert verdict(machine, fcntl, 3, 3) == ALLOW  # F_GETFL
    assert verdict(machine, fcntl, 3, 1030) == ALLOW  # F_DUPFD_CLOEXEC
    assert verdict(machine, fcntl, 3, 4, 0) == EPERM  # F_SETFL
    assert verdict(machine, ioctl, 3, 0x5421) == EPERM  # FIONBIO


def test_no_number_stands_twice_and_none_is_in_two_groups_but_those_of_a_start():
    for column in (0, 1):
        for names in (("core", "threads", "writing"), ("core", "writing", "exec")):
            numbers = [entry[column] for name in names for entry in GROUPS[name].values() if entry[column] is not None]
            assert len(numbers) == len(set(numbers))


def test_other_architectures_and_other_numbers_for_the_same_calls_kill():
    assert verdict("x86_64", 1, audit=0x40000003) == KILL
    assert verdict("x86_64", 0x40000000 + 1) == KILL
    with pytest.raises(KeyError):
        build_filter("riscv64", ("core",), 1)


def test_the_program_is_within_the_kernels_limit():
    assert len(build_filter("x86_64", tuple(GROUPS), 1)) // 8 <= 4096
