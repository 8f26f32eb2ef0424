"""The filter, run instruction by instruction as the kernel does, for both machines."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.errors import SandboxUnavailable
from ai_session.sandbox import seccomp

MACHINES = tuple(seccomp.MACHINES)
EPERM = seccomp.FAIL | errno.EPERM
ENOSYS = seccomp.FAIL | errno.ENOSYS
NO_FAMILY = seccomp.FAIL | errno.EAFNOSUPPORT
NS, USER, SIGCHLD, THREAD = 0x20000, 0x10000000, 17, 0x3D0F00


def verdict(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel answers; every jump must stay inside, and every path must end."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *(arguments + (0,) * 6)[:6])
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator, position = 0, 0
    while True:
        operation, yes, no, value = code[position]
        position += 1
        if operation == seccomp.LOAD:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == seccomp.AND:
            accumulator &= value
        elif operation == seccomp.RETURN:
            return value
        elif operation in (seccomp.EQUAL, seccomp.AT_LEAST, seccomp.ANY_BIT):
            fits = {
                seccomp.EQUAL: accumulator == value,
                seccomp.AT_LEAST: accumulator >= value,
                seccomp.ANY_BIT: bool(accumulator & value),
            }[operation]
            position += yes if fits else no
        else:
            raise AssertionError(f"no such operation: {operation:#x}")


class Filter:
    """A program and its machine."""

    def __init__(self, machine: str, **options: bool) -> None:
        self.abi = seccomp.MACHINES[machine]
        self.program = seccomp.build(machine=machine, **({"network": True} | options))

    def __call__(self, call: str, *arguments: int) -> int:
        return verdict(self.program, self.abi.audit, self.abi.calls[call], *arguments)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_refused_call_fails(machine: str) -> None:
    box = Filter(machine)
    for call in seccomp.REFUSED:
        if call in box.abi.calls:
            assert box(call) == EPERM, call
    for call in seccomp.ABSENT:
        assert box(call) == ENOSYS, call


def test_ordinary_calls_pass(machine: str) -> None:
    box = Filter(machine)
    named = set(box.abi.calls.values())
    for number in set(range(500)) - named:
        assert verdict(box.program, box.abi.audit, number) == seccomp.ALLOW, number


def test_another_abi_is_killed(machine: str) -> None:
    box = Filter(machine)
    assert verdict(box.program, 0x40000003, 11) == seccomp.KILL


def test_x32_is_absent() -> None:
    box = Filter("x86_64")
    assert verdict(box.program, box.abi.audit, 0x40000000 | 520) == ENOSYS


def test_namespaces_are_refused_threads_are_not(machine: str) -> None:
    box = Filter(machine)
    assert box("clone", SIGCHLD) == seccomp.ALLOW
    assert box("clone", THREAD) == seccomp.ALLOW
    for flag in (NS, USER, 0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000):
        assert box("clone", flag | SIGCHLD) == EPERM
        assert box("unshare", flag) == EPERM
    assert box("unshare", 0x80) == EPERM
    assert box("unshare", 0x400) == seccomp.ALLOW


def test_terminal_injection_is_refused_whatever_the_upper_half_says(machine: str) -> None:
    box = Filter(machine)
    for request in (seccomp.TIOCSTI, seccomp.TIOCLINUX):
        assert box("ioctl", 0, request) == EPERM
        assert box("ioctl", 0, 0xFFFFFFFF00000000 | request) == EPERM
    assert box("ioctl", 0, 0x5413) == seccomp.ALLOW


def test_no_lease_keeps_programs_outside_waiting(machine: str) -> None:
    box = Filter(machine)
    for command in (seccomp.F_SETLEASE, seccomp.F_SETDELEG):
        assert box("fcntl", 3, command, fcntl.F_WRLCK) == EPERM
        assert box("fcntl", 3, 0xFFFFFFFF00000000 | command, fcntl.F_RDLCK) == EPERM
    for command in (fcntl.F_DUPFD, fcntl.F_SETLK, fcntl.F_GETLEASE, fcntl.F_NOTIFY):
        assert box("fcntl", 3, command) == seccomp.ALLOW


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6000])
def test_no_file_can_be_made_to_act_for_another(machine: str, mode: int) -> None:
    box = Filter(machine)
    assert box("fchmod", 0, mode) == EPERM
    assert box("fchmodat", 0, 0, mode) == EPERM
    assert box("fchmodat2", 0, 0, mode) == EPERM
    assert box("mkdirat", 0, 0, mode) == EPERM
    assert box("mknodat", 0, 0, 0o100000 | mode) == EPERM
    assert box("openat", 0, 0, seccomp.O_CREAT, mode) == EPERM
    assert box("openat", 0, 0, seccomp.O_TMPFILE, mode) == EPERM
    assert box("openat", 0, 0, 0, mode) == seccomp.ALLOW
    assert box("openat", 0, 0, seccomp.O_CREAT, 0o644) == seccomp.ALLOW
    assert box("fchmod", 0, 0o755) == seccomp.ALLOW
    assert box("fchmod", 0, 0o1777) == seccomp.ALLOW


def test_the_old_calls_of_x86_are_no_way_around() -> None:
    box = Filter("x86_64")
    assert box("open", 0, seccomp.O_CREAT, 0o4755) == EPERM
    assert box("creat", 0, 0o4755) == EPERM
    assert box("chmod", 0, 0o4755) == EPERM
    assert box("mkdir", 0, 0o2755) == EPERM
    assert box("mknod", 0, 0o060600) == EPERM
    assert box("mknod", 0, 0o104755) == EPERM


def test_devices_cannot_be_made(machine: str) -> None:
    box = Filter(machine)
    assert box("mknodat", 0, 0, 0o020666) == EPERM
    assert box("mknodat", 0, 0, 0o060660) == EPERM
    assert box("mknodat", 0, 0, 0o010644) == seccomp.ALLOW


def test_families(machine: str) -> None:
    box = Filter(machine)
    for family in (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6):
        assert box("socket", family, 1) == seccomp.ALLOW
        assert box("socket", family, 2 | 0o2000000) == seccomp.ALLOW
    assert box("socket", seccomp.AF_NETLINK, 3, 0) == seccomp.ALLOW
    assert box("socket", seccomp.AF_NETLINK, 3, 12) == seccomp.FAIL | errno.EPROTONOSUPPORT
    assert box("socket", seccomp.AF_INET, 3) == EPERM
    assert box("socket", seccomp.AF_INET6, 3 | 0o2000000) == EPERM
    for family in (17, 38, 40, 44, 3, 9, 29):
        assert box("socket", family, 1) == NO_FAMILY


def test_no_network_and_no_unix_is_no_socket(machine: str) -> None:
    box = Filter(machine, network=False, unix_sockets=False, no_namespaces=True)
    for family in range(46):
        assert box("socket", family, 1) == NO_FAMILY
    assert box("socketpair", 1, 1) == seccomp.ALLOW
    assert box("socketpair", 1, 2) == EPERM
    assert box("socketpair", 1, 2 | 0o2000000) == EPERM
    for call in ("shmget", "semget", "msgget"):
        assert box(call) == EPERM


def test_segments_are_small(machine: str) -> None:
    box = Filter(machine)
    assert box("shmget", 0, seccomp.SEGMENT_BYTES) == seccomp.ALLOW
    assert box("shmget", 0, seccomp.SEGMENT_BYTES + 1) == seccomp.FAIL | errno.EINVAL
    assert box("shmget", 0, 1 << 32) == seccomp.FAIL | errno.EINVAL
    assert box("shmget", 1 << 40, 56) == seccomp.ALLOW


def test_without_namespaces_others_keep_their_limits(machine: str) -> None:
    box = Filter(machine, no_namespaces=True)
    assert box("prlimit64", 0, 7, 1) == seccomp.ALLOW
    assert box("prlimit64", 4242, 7, 1) == EPERM
    assert box("setpriority", 0, 0, 19) == seccomp.ALLOW
    assert box("setpriority", 0, 4242, 19) == EPERM
    assert box("setpriority", 2, 0, 19) == EPERM
    inside_a_pid_namespace = Filter(machine)
    assert inside_a_pid_namespace("prlimit64", 4242, 7, 1) == seccomp.ALLOW
    assert inside_a_pid_namespace("setpriority", 0, 4242, 19) == seccomp.ALLOW


@given(
    number=st.integers(0, 2**32 - 1),
    arguments=st.tuples(*[st.integers(0, 2**64 - 1)] * 6),
    options=st.fixed_dictionaries({n: st.booleans() for n in ("network", "unix_sockets", "no_namespaces")}),
    name=st.sampled_from(MACHINES),
)
def test_every_path_ends_with_a_verdict(
    number: int, arguments: tuple[int, ...], options: dict[str, bool], name: str
) -> None:
    box = Filter(name, **options)
    answer = verdict(box.program, box.abi.audit, number, *arguments)
    too_large, no_protocol = seccomp.FAIL | errno.EINVAL, seccomp.FAIL | errno.EPROTONOSUPPORT
    assert answer in (seccomp.ALLOW, EPERM, ENOSYS, NO_FAMILY, too_large, no_protocol)


def test_jumps_fit_in_a_byte_and_the_program_in_the_kernel(machine: str) -> None:
    for network, unix_sockets, no_namespaces in itertools.product((False, True), repeat=3):
        program = seccomp.build(
            network=network, unix_sockets=unix_sockets, no_namespaces=no_namespaces, machine=machine
        )
        code = list(struct.iter_unpack("<HBBI", program))
        assert len(code) < 4096
        for position, (operation, yes, no, _) in enumerate(code):
            if operation in (seccomp.EQUAL, seccomp.AT_LEAST, seccomp.ANY_BIT):
                assert position + 1 + max(yes, no) < len(code)


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp.build(network=True, machine="riscv64")
    assert seccomp.build(network=True) == seccomp.build(network=True, machine=os.uname().machine)
