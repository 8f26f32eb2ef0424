"""How an observer outside of every box sees that an attack got out: what came to be, changed, was heard or is held."""

from __future__ import annotations

import ctypes
import os
import re
import select
import socket
import stat
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.ai_session.escape.target import Target

Evidence = Callable[[Target, str], bool]
"""Takes the target and what the terminal printed during the attack."""

PIDFD_GETFD = 438
OVERRUN_SECONDS = 3.0
"""How long something too large may last before it counts as let be; who watches looks every 0.1 s."""


def made(path: str, text: str = "") -> Evidence:
    """A file is there that was not, holding ``text``."""

    def look(target: Target, _: str) -> bool:
        location = Path(target.fill(path))
        return location.is_dir() or (location.exists() and target.fill(text) in location.read_text(errors="replace"))

    return look


def changed(path: str) -> Evidence:
    """A file of the target no longer says what it said, or is gone."""
    return lambda target, _: target.differs(Path(target.fill(path)))


def gone(path: str) -> Evidence:
    return lambda target, _: not os.path.lexists(target.fill(path))


def marked(pattern: str, before: str = "") -> Evidence:
    """One of these files, given by a pattern below the root, holds the nonce, after ``before``."""

    def look(target: Target, _: str) -> bool:
        files = (path for path in Path("/").glob(target.fill(pattern).lstrip("/")) if path.is_file())
        return any((before + target.values["nonce"]).encode() in path.read_bytes() for path in files)

    return look


def mode(path: str, bits: int) -> Evidence:
    """A file has these permission bits."""

    def look(target: Target, _: str) -> bool:
        location = Path(target.fill(path))
        return location.exists() and stat.S_IMODE(location.stat().st_mode) & bits == bits

    return look


def backdated(path: str) -> Evidence:
    return lambda target, _: Path(target.fill(path)).stat().st_mtime < 1e9


def larger(path: str, than: int) -> Evidence:
    """A file, or all in a directory, holds more than this many bytes."""

    def look(target: Target, _: str) -> bool:
        top = Path(target.fill(path))
        files = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
        return sum(file.stat().st_size for file in files) > than

    return look


def shown(secret: str) -> Evidence:
    """A secret that exists outside only was printed."""
    return lambda target, printed: target.values[secret] in re.sub(r"\s", "", printed)


def heard(channel: str) -> Evidence:
    """Somebody outside, on this channel, heard the attack's nonce."""
    return lambda target, _: channel in target.heard()


def victim_ended(target: Target, _: str) -> bool:
    """Who is killed has a moment to go."""
    return target.victim_ends(0.3)


def victim_touched(target: Target, _: str) -> bool:
    """Its priority or limits are not what they were."""
    return not target.victim_is_untouched()


def survives(target: Target, _: str) -> bool:
    """A process of the attack lives on after its session."""
    return bool(target.attackers())


def run_by_git(directory: str) -> Evidence:
    """git, run outside afterwards, runs what was planted: a program that makes ``@outside@/ran``."""

    def look(target: Target, _: str) -> bool:
        _use_git(target, directory)
        return Path(target.fill("@outside@/ran")).exists()

    return look


def run_by(*words: str) -> Evidence:
    """The same of another program that is run outside afterwards, in the project."""

    def look(target: Target, _: str) -> bool:
        target.run(*map(target.fill, words), cwd=Path(target.values["ws"]))
        return Path(target.fill("@outside@/ran")).exists()

    return look


def written_by_git(directory: str, path: str) -> Evidence:
    """git, run outside afterwards, changes a file outside of the project."""

    def look(target: Target, _: str) -> bool:
        _use_git(target, directory)
        return target.differs(Path(target.fill(path)))

    return look


def _use_git(target: Target, directory: str) -> None:
    for words in ("status", "checkout -q -B other", "commit -q --allow-empty -m outside"):
        target.run("git", "-C", target.fill(directory), *words.split())


def holds(kind: str) -> Evidence:
    """An attacker has a descriptor of this kind, as the links in /proc/PID/fd say."""
    return lambda target, _: any(kind in link for pid in target.attackers() for link in _links(pid, "fd").values())


def holds_many(descriptors: int) -> Evidence:
    return lambda target, _: any(len(_links(pid, "fd")) > descriptors for pid in target.attackers())


def holds_socket(family: int) -> Evidence:
    """An attacker has a socket of this family; a copy of it is asked."""

    def look(target: Target, _: str) -> bool:
        for pid in target.attackers():
            for number, link in _links(pid, "fd").items():
                if link.startswith("socket:") and _family(pid, int(number)) == family:
                    return True
        return False

    return look


def new_namespace(kind: str) -> Evidence:
    """Attackers, who were all born in the same, are in more than one namespace."""
    return lambda target, _: len({os.readlink(f"/proc/{pid}/ns/{kind}") for pid in target.attackers()}) > 1


def mounted(target: Target, _: str) -> bool:
    """An attacker sees a mount that is named after the nonce."""
    tables = (Path(f"/proc/{pid}/mountinfo").read_text() for pid in target.attackers())
    return any(target.values["nonce"] in table for table in tables)


def new_key(target: Target, _: str) -> bool:
    """The user's keyring has a key that is named after the nonce."""
    return target.values["nonce"] in target.run("cat", "/proc/keys").stdout


def answers(target: Target, _: str) -> bool:
    """Who connects from outside gets the nonce from an attacker."""
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", int(target.values["free"])), OVERRUN_SECONDS) as link,
    ):
        return link.recv(100).decode() == target.values["nonce"]
    return False


def crowd(processes: int) -> Evidence:
    return lambda target, _: len(target.attackers()) > processes


def keeps_waiting(path: str) -> Evidence:
    """Whoever opens a file has to wait until an attacker lets go of it."""

    def look(target: Target, _: str) -> bool:
        try:
            os.close(os.open(target.fill(path), os.O_RDONLY | os.O_NONBLOCK))
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    return look


def keeps_memory(size: int) -> Evidence:
    """Attackers hold this many bytes together, and all of them go on."""

    def look(target: Target, _: str) -> bool:
        pids = target.attackers()
        with _watched(pids) as ends:
            if sum(map(_resident, pids)) <= size or select.select(ends, [], [], OVERRUN_SECONDS)[0]:
                return False
        return sum(map(_resident, pids)) > size

    return look


def keeps_files_in_memory(size: int) -> Evidence:
    """Attackers hold this many bytes in files that lie nowhere, and all of them go on."""

    def look(target: Target, _: str) -> bool:
        pids = target.attackers()
        with _watched(pids) as ends:
            if select.select(ends, [], [], OVERRUN_SECONDS)[0]:
                return False
        held = {
            (info.st_dev, info.st_ino): info.st_blocks * 512
            for pid in pids
            for number, link in _links(pid, "fd").items()
            if link.startswith("/memfd:") and (info := Path(f"/proc/{pid}/fd/{number}").stat())
        }
        return sum(held.values()) > size

    return look


def keeps_segments(size: int) -> Evidence:
    """The SysV segments that an attacker sees hold this many bytes, attached or not."""

    def look(target: Target, _: str) -> bool:
        for pid in target.attackers()[:1]:
            table = subprocess.run(
                ["nsenter", "--ipc", "--target", str(pid), "cat", "/proc/sysvipc/shm"], capture_output=True, check=True
            ).stdout
            rows = [row.split() for row in table.splitlines()]
            return sum(int(row[rows[0].index(b"rss")]) for row in rows[1:]) > size
        return False

    return look


def fills(directory: str, than: int) -> Evidence:
    """What an attacker has put into a directory, as it sees it, is larger than this many bytes."""

    def look(target: Target, _: str) -> bool:
        tops = [Path(f"/proc/{pid}/root{directory}") for pid in target.attackers()]
        found = [sum(file.stat().st_size for file in top.glob(target.fill("@nonce@.*"))) for top in tops]
        return max(found, default=0) > than

    return look


def _links(pid: int, folder: str) -> dict[str, str]:
    found: dict[str, str] = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/{folder}"):
            with suppress(OSError):
                found[name] = os.readlink(f"/proc/{pid}/{folder}/{name}")
    return found


def _family(pid: int, number: int) -> int:
    pidfd = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None).syscall(PIDFD_GETFD, pidfd, number, 0)
    finally:
        os.close(pidfd)
    if copy < 0:
        return -1
    with socket.socket(fileno=copy) as sock:
        return sock.family


@contextmanager
def _watched(pids: list[int]) -> Generator[list[int]]:
    """Descriptors that become readable when the processes end."""
    ends: list[int] = []
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                ends.append(os.pidfd_open(pid))
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _resident(pid: int) -> int:
    """Bytes of a process's own share."""
    with suppress(OSError):
        table = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.findall(r"^Pss:\s+(\d+) kB", table, re.MULTILINE)[0]) << 10
    return 0
