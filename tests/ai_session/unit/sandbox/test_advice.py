"""What doctor advises, machine by machine; commands as they would be typed there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai_session.sandbox.advice import Machine, failed, limits, machine, missing

DENIED = "bwrap: No permissions to create new namespace, likely because the kernel does not allow it"
FULL = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"
LOAD = (
    "loaded; sudo install -m 644 /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && "
    "sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
)
UBUNTU = {"kernel.apparmor_restrict_unprivileged_userns": "1", "user.max_user_namespaces": "63000"}


@pytest.mark.parametrize(
    ("said", "here", "advised"),
    [
        (
            DENIED,
            Machine({"kernel.unprivileged_userns_clone": "0"}),
            "echo kernel.unprivileged_userns_clone=1 | sudo tee",
        ),
        (FULL, Machine({"user.max_user_namespaces": "0"}), "echo user.max_user_namespaces=10000 | sudo tee"),
        (
            FULL,
            Machine({"user.max_user_namespaces": "0"}, root=True),
            "10000 | tee /etc/sysctl.d/60-ai-session.conf && ",
        ),
        (DENIED, Machine(container="docker"), "docker run --security-opt seccomp=unconfined"),
        (DENIED, Machine(container="podman"), "podman run --security-opt seccomp=unconfined"),
        (FULL, Machine(container="docker"), "run ai-session outside of it"),
        (DENIED, Machine(), "ai-session docs sandbox"),
        (
            "bwrap: setting up uid map: Permission denied",
            Machine(UBUNTU),
            "sudo apt install apparmor-profiles && sudo ",
        ),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            Machine(UBUNTU, has_profile=True),
            LOAD,
        ),
        ("bwrap: setting up uid map: Permission denied", Machine(container="docker"), "apparmor=unconfined"),
        ("bwrap: Can't mount proc on /newroot/proc", Machine(container="docker"), "systempaths=unconfined"),
        ("bwrap: Can't mount proc on /newroot/proc", Machine(container="podman"), "unmask=ALL"),
        ("bwrap: Failed to make / slave: Permission denied", Machine(container="docker"), "forbids mounts; docker run"),
        ("bwrap: something new", Machine(), "ai-session docs sandbox"),
    ],
)
def test_failures(said: str, here: Machine, advised: str) -> None:
    what, _, advice = failed(said, here).rpartition(": ")
    assert what == said
    assert advised in advice


@pytest.mark.parametrize(
    ("distributions", "root", "advised"),
    [
        (("debian",), False, "sudo apt install bubblewrap util-linux"),
        (("linuxmint", "ubuntu", "debian"), True, "apt install bubblewrap util-linux"),
        (("fedora",), False, "sudo dnf install bubblewrap util-linux"),
        (("alpine",), True, "apk add bubblewrap util-linux"),
        (("arch",), False, "sudo pacman -S bubblewrap util-linux"),
        ((), False, "install bubblewrap and util-linux"),
    ],
)
def test_packages(distributions: tuple[str, ...], root: bool, advised: str) -> None:
    reported = missing(["bubblewrap", "util-linux"], Machine(distributions=distributions, root=root))
    assert reported == f"bubblewrap and util-linux not installed: {advised}"


@pytest.mark.parametrize(
    ("here", "advised"),
    [
        (Machine(), ""),
        (Machine(container="docker", systemd=True, cgroup2=True), ""),
        (Machine(systemd=True), "systemd.unified_cgroup_hierarchy=1"),
        (
            Machine(systemd=True, cgroup2=True, own_cgroup="/user.slice/user-1000.slice/session-3.scope"),
            "systemd-run --user --unit=ai-session ai-session daemon run",
        ),
        (
            Machine(systemd=True, cgroup2=True, own_cgroup="/user.slice/user-1000.slice/user@1000.service/app.slice"),
            "Delegate=cpu memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf",
        ),
    ],
)
def test_limits(here: Machine, advised: str) -> None:
    assert advised in limits(here)
    assert bool(limits(here)) == bool(advised)


def test_a_machine_is_known_by_its_files(tmp_path: Path) -> None:
    assert machine(tmp_path) == Machine(root=machine(tmp_path).root)
    files = {
        "proc/sys/kernel/unprivileged_userns_clone": "1\n",
        "proc/sys/user/max_user_namespaces": "63000\n",
        "proc/self/cgroup": "1:name=systemd:/x\n0::/user.slice\n",
        "etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE="debian"\n',
        "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
        "run/.containerenv": "",
        "usr/share/apparmor/extra-profiles/bwrap-userns-restrict": "",
        "run/systemd/system/x": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = machine(tmp_path)
    assert found.sysctls == {"kernel.unprivileged_userns_clone": "1", "user.max_user_namespaces": "63000"}
    assert (found.container, found.distributions) == ("podman", ("ubuntu", "debian"))
    assert (found.own_cgroup, found.cgroup2, found.systemd, found.has_profile) == ("/user.slice", True, True, True)
