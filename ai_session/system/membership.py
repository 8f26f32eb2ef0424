"""Which processes belong to a session, wherever they fled, and how all of them are ended.

Evidence comes from ``/proc`` only; where it is missing (macOS) there are none, and nothing raises.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache

from ai_session.system.kernel_files import READ_BYTES, all_pids, newest_pid, read_stat, read_text, session_of
from ai_session.system.processes import alive, start_time

COOKIE_VARIABLE = "AI_SESSION_ID"
_COOKIE = COOKIE_VARIABLE.encode()
Identity = tuple[int, int]
"""Of a process: its number, and the inode of its directory, which no later process of the same number has."""
_SWEEP_ROUNDS = 200
_EMPTY_LOOKS = 20
_LOOKS_WHILE_BECOMING = 1000


def members(cookie: str) -> list[int]:
    """Live processes of a session, as ``Membership`` finds them. Some ms; call it off the loop."""
    return sorted(Membership((cookie,)).look()[cookie])


def sweep(cookie: str) -> int:
    """``Membership.sweep`` of one session: how many processes were killed. Blocks some ms; call it off the loop."""
    return Membership((cookie,)).sweep()[cookie]


def ask_to_leave(cookie: str) -> list[int]:
    """``Membership.ask_to_leave`` of one session: whom it was sent to. Blocks some ms."""
    return Membership((cookie,)).ask_to_leave()[cookie]


class Membership:
    """Which processes belong to which of some sessions, found by looking at those of the whole machine.

    To a session belong those born with ``AI_SESSION_ID=<cookie>`` in their environment, their descendants, and what
    lives in a kernel session that one of these leads; never the caller. What was read of a process is not read again,
    so a second look costs 1 ms where the first took 10. Those who are ``elsewhere``, because they were there before
    anybody had one of the cookies, are not read at all. All methods block; call them off the event loop.
    """

    def __init__(self, cookies: Iterable[str], elsewhere: Collection[Identity] = frozenset()) -> None:
        self._cookies = {f"{COOKIE_VARIABLE}={cookie}".encode(): cookie for cookie in cookies}
        self._elsewhere = elsewhere
        self._known: dict[Identity, str] = {}
        """The session each process was born in, "" for none of these."""
        self._missed = False

    def look(self, meet: Callable[[int, str], object] | None = None) -> dict[str, set[int]]:
        """The live members of each session; ``meet`` is called with each as soon as it is found."""
        found: dict[str, set[int]] = {cookie: set() for cookie in self._cookies.values()}
        newest, pids = newest_pid(), all_there()
        # Newest first: what forks fast is read before it has gone.
        pids.sort(reverse=True)
        asked = [identity for identity in pids if identity not in self._elsewhere]
        sessions = {identity: session_of(identity[0]) for identity in asked if identity not in self._known}
        gone: list[int] = []
        for identity in asked:
            cookie = self._born_in(identity)
            if cookie is None:
                gone.append(sessions[identity])
            elif cookie and alive(identity[0], None):
                found[cookie].add(identity[0])
                if meet is not None:
                    meet(identity[0], cookie)
        inodes = dict(pids)
        # It may have been a member with a child by now, unless others began its kernel session. And numbers that began
        # again meanwhile may have led a process past the listing.
        others = {leader for leader in gone if self._of_another((leader, inodes.get(leader, 0)))}
        self._missed = not others.issuperset(gone) or newest > newest_pid()
        if any(found.values()):
            by_session = _by_session(pid for pid, _ in pids)
            for cookie, those in found.items():
                for pid in _linked(those, by_session):
                    those.add(pid)
                    if meet is not None:
                        meet(pid, cookie)
        return found

    def _of_another(self, identity: Identity) -> bool:
        return identity in self._elsewhere or self._known.get(identity) == ""

    def _born_in(self, identity: Identity) -> str | None:
        """The session of a process, "" for none of these; None where it ended before it was known."""
        pid = identity[0]
        if identity in self._known or pid == os.getpid():
            return self._known.get(identity, "")
        try:
            environment = _environment(pid)
        except PermissionError:
            return ""
        except OSError:
            seen = read_stat(pid)
            if seen is not None:
                self._known[identity] = ""
            return None if seen is None or seen.state in "ZX" else ""
        words = environment.split(b"\0") if _COOKIE in environment else ()
        cookie = self._known[identity] = next((self._cookies[word] for word in words if word in self._cookies), "")
        return cookie

    def ask_to_leave(self) -> dict[str, list[int]]:
        """Sends every member SIGTERM; returns whom it was sent to."""
        asked = {cookie: sorted(those) for cookie, those in self.look().items()}
        for pid in (pid for those in asked.values() for pid in those):
            if _signal(pid, signal.SIGTERM):
                _signal(pid, signal.SIGCONT)
        return asked

    def sweep(self) -> dict[str, int]:
        """Kills every member; returns how many processes of each session were killed.

        All are stopped before the first is killed, so that none can fork away; this repeats until none is left, or a
        bounded number of rounds found some that cannot be killed.
        """
        killed: dict[str, set[tuple[int, int | None]]] = {cookie: set() for cookie in self._cookies.values()}
        empty = 0
        for _ in range(_SWEEP_ROUNDS):
            stopped = self._stop()
            for (pid, started), cookie in stopped.items():
                if _signal(pid, signal.SIGKILL):
                    killed[cookie].add((pid, started))
            empty = 0 if stopped else empty + 1
            # A process may have handed over to its child and gone before it was read, unless none had gone.
            if empty == _EMPTY_LOOKS or (empty and not self._missed):
                break
        return {cookie: len(those) for cookie, those in killed.items()}

    def _stop(self) -> dict[tuple[int, int | None], str]:
        """Stops members as they are found, until a look finds no other; whose they were, by number and start time."""
        stopped: dict[tuple[int, int | None], str] = {}
        seen: set[int] = set()

        def stop(pid: int, cookie: str) -> None:
            if pid not in seen and _signal(pid, signal.SIGSTOP):
                stopped[pid, start_time(pid)] = cookie
            seen.add(pid)

        before = -1
        while before < len(stopped):
            before = len(stopped)
            self.look(stop)
        return stopped


def all_there() -> list[Identity]:
    """Every process of the machine. About 1 ms."""
    try:
        with os.scandir("/proc") as entries:
            return [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    """What the process was born with. One that is just becoming another program has none yet: it is asked again.

    Raises OSError where there is none: it has ended, or is one of the kernel's; PermissionError where it is not for us.
    """
    for _ in range(_LOOKS_WHILE_BECOMING):
        if found := _contents(f"/proc/{pid}/environ"):
            return found
        # Fields 23 and 51: who has ended, and a process of the kernel, has no memory; the environment's end comes last.
        tail = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if len(tail) < 49 or tail[20] == "0":
            raise ProcessLookupError(pid)
        if tail[48] != "0":
            return b""
        os.sched_yield()
    return b""


def _contents(path: str) -> bytes:
    """Of a file that gives less than is asked for at its end only; half the cost of a file object. Raises OSError."""
    fd, found = os.open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while part := os.read(fd, READ_BYTES):
            found += part
            if len(part) < READ_BYTES:
                break
    finally:
        os.close(fd)
    return found


def _by_session(pids: Iterable[int]) -> dict[int, list[int]]:
    """The processes of each kernel session, by its leader."""
    found: dict[int, list[int]] = {}
    for pid in pids:
        found.setdefault(session_of(pid), []).append(pid)
    return found


def _linked(found: Collection[int], by_session: Mapping[int, list[int]]) -> Iterator[int]:
    """Processes that are not in ``found`` but descend from it or live in a kernel session that one of it leads."""
    # A daemon started inside a session is no link: its other children belong to other sessions.
    outside = {*found, os.getpid()}
    leaders = set(found) - {os.getpid()}
    while leaders:
        near = {pid for leader in leaders for pid in (*_children(leader), *by_session.get(leader, ()))}
        leaders = {pid for pid in near - outside if alive(pid, None)}
        outside |= near
        yield from leaders


def _children(pid: int) -> list[int]:
    """Of all its threads. Where the kernel keeps no list of them, all processes are asked for their parent."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
    if found or _lists_children():
        return found
    return [child for child in all_pids() if (seen := read_stat(child)) is not None and seen.parent == pid]


@cache
def _lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
