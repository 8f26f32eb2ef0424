"""What prevents a stronger box on this machine, and the commands that change it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

USERNS_SYSCTLS = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "10000"),
}
"""The settings that switch user namespaces off: the value that does, and one that switches them on."""
APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
SETTINGS = (*USERNS_SYSCTLS, APPARMOR)
PROFILE = "bwrap-userns-restrict"
EXTRA_PROFILES = "usr/share/apparmor/extra-profiles"
INSTALLERS = {
    "debian": "apt install",
    "ubuntu": "apt install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "suse": "zypper install",
    "opensuse": "zypper install",
    "arch": "pacman -S",
    "alpine": "apk add",
}
ELSEWHERE = "ai-session docs sandbox"


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that advice depends on: sysctls that exist, the kind of container ("" for none), the distribution and
    those it is like, whether this is root, whether AppArmor has a profile for bubblewrap, how cgroups are mounted."""

    sysctls: Mapping[str, str] = field(default_factory=dict[str, str])
    container: str = ""
    distributions: tuple[str, ...] = ()
    root: bool = False
    has_profile: bool = False
    cgroup2: bool = False
    systemd: bool = False
    own_cgroup: str = ""

    @property
    def sudo(self) -> str:
        """The prefix of a command that root must run."""
        return "" if self.root else "sudo "

    def install(self, *packages: str) -> str:
        """Return the command that installs the packages, or their names if the distribution is unknown."""
        manager = next((INSTALLERS[name] for name in self.distributions if name in INSTALLERS), "")
        return f"{self.sudo}{manager} {' '.join(packages)}" if manager else f"install {' and '.join(packages)}"


def machine(root: Path = Path("/")) -> Machine:
    """Read the facts about this machine from its files."""
    sysctls = {name: text for name in SETTINGS if (text := _read(root / "proc/sys" / name.replace(".", "/")).strip())}
    release = dict(re.findall(r'^(ID|ID_LIKE)="?([^"\n]*)', _read(root / "etc/os-release"), re.MULTILINE))
    container = "docker" if (root / ".dockerenv").exists() else ""
    if (root / "run/.containerenv").exists():
        container = "podman"
    own = re.search(r"^0::(.*)$", _read(root / "proc/self/cgroup"), re.MULTILINE)
    return Machine(
        sysctls,
        container or _read(root / "run/systemd/container").strip(),
        (*release.get("ID", "").split(), *release.get("ID_LIKE", "").split()),
        os.geteuid() == 0,
        (root / EXTRA_PROFILES / PROFILE).exists(),
        (root / "sys/fs/cgroup/cgroup.controllers").exists(),
        (root / "run/systemd/system").is_dir(),
        own[1] if own else "",
    )


def missing(packages: Sequence[str], here: Machine) -> str:
    """Return a message that the packages are not installed; what to do follows the last ``: ``."""
    return f"{' and '.join(packages)} not installed: {here.install(*packages)}"


def failed(error: str, here: Machine) -> str:
    """Return a message with bubblewrap's error; what to do follows the last ``: ``."""
    return f"{error}: {_remedy(error, here)}"


def _remedy(error: str, here: Machine) -> str:
    if "mount proc" in error:
        return _masked_proc(here)
    if "uid map" in error or "RTM_NEWADDR" in error or (here.sysctls.get(APPARMOR) == "1" and "ermission" in error):
        return _apparmor(here)
    if "namespace" in error:
        return _namespaces(error, here)
    if "pivot_root" in error or "make / slave" in error or "mount" in error:
        return "the container forbids mounts; " + _container(here)
    return ELSEWHERE


def _masked_proc(here: Machine) -> str:
    allow = "--security-opt unmask=ALL" if here.container == "podman" else "--security-opt systempaths=unconfined"
    return f"the container masks parts of /proc; start it with {allow} (Kubernetes, procMount=Unmasked)"


def _apparmor(here: Machine) -> str:
    if here.sysctls.get(APPARMOR) != "1":
        return (
            "a security module (AppArmor, SELinux) or the container does not let bubblewrap make namespaces; "
            + _container(here)
        )
    steps = [] if here.has_profile else [f"{here.sudo}apt install apparmor-profiles"]
    steps += [
        f"{here.sudo}install -m 644 /{EXTRA_PROFILES}/{PROFILE} /etc/apparmor.d/",
        f"{here.sudo}apparmor_parser -r /etc/apparmor.d/{PROFILE}",
    ]
    return "AppArmor does not let bubblewrap make user namespaces until its profile is loaded; " + " && ".join(steps)


def _namespaces(error: str, here: Machine) -> str:
    for name, (off, on) in USERNS_SYSCTLS.items():
        if here.sysctls.get(name) == off:
            keep = f"echo {name}={on} | {here.sudo}tee /etc/sysctl.d/60-ai-session.conf"
            return f"user namespaces are switched off; {keep} && {here.sudo}sysctl --system"
    if "ENOSPC" in error:
        return (
            "this runs inside a box or container that allows no further user namespaces; run ai-session outside of it"
        )
    if here.container:
        return "the container's filter refuses namespaces; " + _container(here)
    return "namespaces are refused, by a security module or by a filter this process runs under; " + ELSEWHERE


def _container(here: Machine) -> str:
    program = "podman" if here.container == "podman" else "docker"
    return (
        f"{program} run --security-opt seccomp=unconfined --security-opt apparmor=unconfined, or a seccomp profile "
        "that allows clone, unshare, mount, umount2 and pivot_root"
    )


def limits(here: Machine) -> str:
    """Return how to let the kernel limit boxes; empty if nothing can be done."""
    if here.container or not here.systemd:
        return ""
    if not here.cgroup2:
        return "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line"
    if "/user@" not in here.own_cgroup and not here.root:
        return "ai-session daemon stop --keep-sessions; systemd-run --user --unit=ai-session ai-session daemon run"
    drop_in = "/etc/systemd/system/user@.service.d"
    return (
        f"{here.sudo}mkdir -p {drop_in} && printf '[Service]\\nDelegate=cpu memory pids\\n' | {here.sudo}tee "
        f"{drop_in}/delegate.conf && {here.sudo}systemctl daemon-reload, then log in again"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
