"""The processes that belong to a session, wherever they moved, and how all of them are ended.

Evidence comes from ``/proc`` only; without it (macOS) no process is found, and nothing raises.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache

from ai_session.system import processes
from ai_session.system.kernel_files import (
    READ_BYTES,
    all_pids,
    newest_pid,
    read_stat,
    read_text,
    session_of,
)
from ai_session.system.processes import alive, start_time

COOKIE_VARIABLE = "AI_SESSION_ID"
_COOKIE = COOKIE_VARIABLE.encode()
Identity = tuple[int, int]
"""The pid of a process, and the inode of its directory, which no later process with the same pid has."""
_SWEEP_ROUNDS = 200
_EMPTY_ROUNDS = 20
_EXEC_RETRIES = 1000
_KERNEL_THREAD = 0x200000


def members(cookie: str) -> list[int]:
    """Return the live processes of a session, as ``Membership`` finds them. Blocks some ms; call it off the loop."""
    return sorted(Membership((cookie,)).look()[cookie])


def sweep(cookie: str) -> int:
    """Kill the processes of one session and return their number, see ``Membership.sweep``. Blocks some ms."""
    return Membership((cookie,)).sweep()[cookie]


def ask_to_leave(cookie: str) -> list[int]:
    """Ask the processes of one session to end and return their pids, see ``Membership``. Blocks some ms."""
    return Membership((cookie,)).ask_to_leave()[cookie]


class Membership:
    """The processes of some sessions, found among all processes of the machine.

    Members of a session are processes born with ``AI_SESSION_ID=<cookie>`` in their environment, their descendants, and
    whatever lives in a kernel session that one of these leads; never the caller. Facts about a process are cached, so
    that a second look costs 1 ms where the first took 10. Processes that are ``elsewhere``, because they existed before
    the cookies did, are not read at all, nor are those that have ``ended``, a set that several of these may share. All
    methods block; call them off the event loop.
    """

    def __init__(
        self,
        cookies: Iterable[str],
        elsewhere: Collection[Identity] = frozenset(),
        ended: set[Identity] | None = None,
    ) -> None:
        self._cookies = {f"{COOKIE_VARIABLE}={cookie}".encode(): cookie for cookie in cookies}
        self._elsewhere = elsewhere
        self._ended = set[Identity]() if ended is None else ended
        self._known: dict[Identity, str] = {}
        """The session in which each process was born, "" for none of these. Not to be shared: a process that is in no
        session now may begin another one's program."""
        self._starting = False
        self._missed = False

    def look(self, meet: Callable[[int, str], object] | None = None) -> dict[str, set[int]]:
        """Return the live members of each session; ``meet`` is called with each as soon as it is found."""
        found: dict[str, set[int]] = {cookie: set() for cookie in self._cookies.values()}
        newest, pids = newest_pid(), all_there()
        # Newest first: a process that forks fast is read before it ends.
        pids.sort(reverse=True)
        earlier, gone = self._elsewhere, self._ended
        candidates = [one for one in pids if one not in earlier and one not in gone]
        sessions = {identity: session_of(identity[0]) for identity in candidates if identity not in self._known}
        ended: list[int] = []
        self._starting = False
        for identity in candidates:
            cookie = self._born_in(identity)
            if cookie is None:
                # What it started before it ended is there in the next look, and is read for itself.
                gone.add(identity)
                ended.append(sessions[identity])
            elif cookie and alive(identity[0], None):
                found[cookie].add(identity[0])
                if meet is not None:
                    meet(identity[0], cookie)
        inodes = dict(pids)
        # A process that ended may have been a member and left a child, unless a stranger began its kernel session. And
        # if pids have wrapped around since, a new process may have escaped the listing.
        others = {leader for leader in ended if self._is_stranger((leader, inodes.get(leader, 0)))}
        self._missed = self._starting or not others.issuperset(ended) or newest > newest_pid()
        gone.intersection_update(pids)
        if any(found.values()):
            by_session = _by_session(pid for pid, _ in pids)
            for cookie, those in found.items():
                for pid in _linked(those, by_session):
                    those.add(pid)
                    if meet is not None:
                        meet(pid, cookie)
        return found

    def _is_stranger(self, identity: Identity) -> bool:
        return identity in self._elsewhere or self._known.get(identity) == ""

    def _born_in(self, identity: Identity) -> str | None:
        """Return the session of a process, "" for none of these; None if it ended before that was known."""
        pid = identity[0]
        if identity in self._known or pid == os.getpid():
            return self._known.get(identity, "")
        try:
            environment = _environment(pid)
        except PermissionError:
            return ""
        except TimeoutError:
            self._starting = True
            return ""
        except OSError:
            return None
        words = environment.split(b"\0") if _COOKIE in environment else ()
        cookie = self._known[identity] = next((self._cookies[word] for word in words if word in self._cookies), "")
        return cookie

    def ask_to_leave(self) -> dict[str, list[int]]:
        """Ask every member, as ``processes.ask_to_leave`` does; return the pids."""
        sent = {cookie: sorted(those) for cookie, those in self.look().items()}
        for those in sent.values():
            processes.ask_to_leave(those)
        return sent

    def sweep(self) -> dict[str, int]:
        """Kill every member; return the number of killed processes of each session.

        All are stopped before the first is killed, so that none can fork away. This repeats until none is left, or a
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
            # A process may have forked and ended before it was read, unless none had ended.
            if empty == _EMPTY_ROUNDS or (empty and not self._missed):
                break
        return {cookie: len(those) for cookie, those in killed.items()}

    def _stop(self) -> dict[tuple[int, int | None], str]:
        """Stop members as they are found, until a look finds no more; return their sessions by pid and start time."""
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
    """Return every process of the machine. Blocks about 1 ms."""
    try:
        with os.scandir("/proc") as entries:
            return [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    """Return the environment in which the process was born, empty for one of the kernel. During exec it has none: this
    retries until it has. Raises OSError if it has ended, PermissionError if unreadable, TimeoutError if exec is slow.
    """
    for _ in range(_EXEC_RETRIES):
        if found := _contents(f"/proc/{pid}/environ"):
            return found
        # Fields 3, 9, 23 and 51: ended and kernel processes have no memory; the end of the environment is set last.
        tail = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        of_kernel = len(tail) > 6 and int(tail[6]) & _KERNEL_THREAD
        if len(tail) < 49 or (tail[20] == "0" and not of_kernel):
            raise ProcessLookupError(pid)
        if tail[48] != "0" or of_kernel:
            return b""
        os.sched_yield()
    raise TimeoutError(pid)


def _contents(path: str) -> bytes:
    """Read a file whose reads are short only at its end, at half the cost of a file object. Raises OSError."""
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
    """Return the processes of each kernel session, by its leader."""
    found: dict[int, list[int]] = {}
    for pid in pids:
        found.setdefault(session_of(pid), []).append(pid)
    return found


def _linked(found: Collection[int], by_session: Mapping[int, list[int]]) -> Iterator[int]:
    """Yield processes outside of ``found`` that descend from it or live in a kernel session that one of it leads."""
    # A daemon started inside a session is no link: its other children belong to other sessions.
    outside = {*found, os.getpid()}
    leaders = set(found) - {os.getpid()}
    while leaders:
        near = {pid for leader in leaders for pid in (*_children(leader), *by_session.get(leader, ()))}
        leaders = {pid for pid in near - outside if alive(pid, None)}
        outside |= near
        yield from leaders


def _children(pid: int) -> list[int]:
    """Return the children of all threads. Without the kernel's lists, the parent of every process is read."""
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
