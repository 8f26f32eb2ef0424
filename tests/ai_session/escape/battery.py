"""Runs the cases in one setting: a daemon, a kind of box, a kind of terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.ai_session.escape import attacks_files, attacks_kernel, attacks_reach, works
from tests.ai_session.escape.model import Attack, Press, Resize, See, Type, Work
from tests.ai_session.escape.session import (
    PROMPT,
    WITH_MASKED_PROC,
    Ended,
    Refused,
    Session,
    stop_daemon,
    without_namespaces,
)
from tests.ai_session.escape.target import Target, make_target
from tests.support.bounds import BOUND_SECONDS

DEADLY = "kill-all"
"""Unboxed it ends all that belongs to its user: only for a user of the battery's own, whom only root can become."""
ATTACKS = (*attacks_files.CASES, *attacks_reach.CASES, *attacks_kernel.CASES)
WORKS = works.CASES
MIB = 1 << 20

BOXED = f"""
[session]
user_rc = false
[sandbox]
memory_bytes = {512 * MIB}
processes = 100
file_bytes = {16 * MIB}
tmp_bytes = {64 * MIB}
"""
READ_ONLY = BOXED + 'profile = "read-only"\n'
UNBOXED = """
[session]
user_rc = false
env_allow = ["*"]
[sandbox]
profile = "trusted"
[policy]
mode = "trusted"
"""
PROXY = """
[network]
allow_domains = ["localhost", "allowed.example"]
ports = [80, 443, @tcp@]
"""
RATES = """
[rates]
read_per_minute = 100000
effect_per_minute = 100000
sessions_per_minute = 1000
"""

PRELUDE = """
import ctypes, fcntl, glob, mmap, os, platform, resource, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
CLONE, PERF, USERFAULTFD = (220, 241, 282) if arm else (56, 298, 323)
ADD_KEY, KEYCTL = (217, 219) if arm else (248, 250)
signal.alarm(150)
r, w = os.pipe()
def arrived(s): s.settimeout(5); s.shutdown(socket.SHUT_WR); s.recv(1)
def hold(): print("hol" + "ding-@nonce@", flush=True); sys.stdin.readline()
"""


@dataclass(frozen=True)
class Setting:
    """``level`` is part of what sessions say of their box; ``works`` unless work is not what it is for."""

    name: str
    level: str
    backend: str
    config: str = BOXED
    wrapper: tuple[str, ...] = ()
    works: bool = True


NO_NAMESPACES, NEITHER = without_namespaces(landlock=True), without_namespaces(landlock=False)
SETTINGS = (
    Setting("none", "none", "tmux", UNBOXED),
    Setting("bwrap pty", "bwrap, network off", "pty"),
    Setting("bwrap tmux", "bwrap, network off", "tmux"),
    Setting("bwrap pty proxy", "bwrap, network proxy", "pty", BOXED + PROXY),
    Setting("bwrap tmux proxy", "bwrap, network proxy", "tmux", BOXED + PROXY),
    Setting("read-only pty", "read-only (bwrap, network off", "pty", READ_ONLY, works=False),
    Setting("bwrap-noproc pty", "bwrap-noproc, network off", "pty", wrapper=WITH_MASKED_PROC),
    Setting("landlock pty", "landlock, network off", "pty", wrapper=NO_NAMESPACES),
    Setting("landlock tmux", "landlock, network off", "tmux", wrapper=NO_NAMESPACES),
)
REFUSED = (
    Setting("nothing", "none at all", "pty", wrapper=NEITHER),
    Setting("too weak", "none at all", "pty", f'{BOXED}minimum_level = "bwrap"\n', NO_NAMESPACES),
)


@dataclass
class Outcome:
    """What came of one run: attacks that got out, those whose shell did not come back, work that failed; ``notes`` say
    what else happened to a case."""

    setting: Setting
    attacks: Sequence[Attack]
    works: Sequence[Work]
    escaped: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    notes: dict[str, str] = field(default_factory=dict[str, str])


def run(setting: Setting, attacks: Sequence[Attack] = ATTACKS, cases: Sequence[Work] = WORKS) -> Outcome:
    """Attacks that share a session first, then those that are alone, then work for which the programs are there."""
    attacks = [case for case in attacks if case.name != DEADLY or os.geteuid() == 0]
    cases = [case for case in cases if setting.works and all(map(shutil.which, case.needs))]
    outcome = Outcome(setting, attacks, cases)
    with ready(setting) as made:
        battery = Battery(made, setting, outcome)
        battery.together([attack for attack in attacks if not attack.alone])
        for attack in attacks:
            if attack.alone:
                battery.alone(attack)
        battery.work(cases)
    return outcome


@contextmanager
def ready(setting: Setting) -> Generator[Target]:
    """A target with the setting's configuration; its daemon is stopped in the end."""
    with make_target() as made:
        made.write(made.home / ".config/ai-session/config.toml", made.fill(setting.config + RATES))
        try:
            yield made
        finally:
            stop_daemon(made)


class Battery:
    """Types cases of one setting and notes what came of them."""

    def __init__(self, made: Target, setting: Setting, outcome: Outcome) -> None:
        self._world = made
        self._setting = setting
        self._outcome = outcome

    def together(self, attacks: Sequence[Attack]) -> None:
        """In one session, or as many as it takes when attacks end it."""
        left = list(attacks)
        while left:
            self._world.begin()
            with self._session(self._world.project()) as session:
                while left and self._judge(session, left.pop(0)):
                    pass

    def alone(self, attack: Attack) -> None:
        """In a session that may be refused; judged when that has ended."""
        self._world.begin()
        text = ""
        try:
            with self._session(self._world.project(attack.trap)) as session:
                self._attack(session, attack)
                text = session.text
        except Refused as refusal:
            self._outcome.notes[attack.name] = str(refusal)
        if attack.name not in self._outcome.escaped:
            self._note(attack, text)
        self._world.end_attackers()

    def work(self, cases: Sequence[Work]) -> None:
        left = list(cases)
        while left:
            self._world.begin()
            with self._session(self._world.project()) as session:
                while left and self._works(session, left.pop(0)):
                    pass

    @contextmanager
    def _session(self, project: Path) -> Generator[Session]:
        with Session(self._world, project, self._setting.backend, self._setting.wrapper) as session:
            assert self._setting.level in session.level, session.level
            yield session

    def _judge(self, session: Session, attack: Attack) -> bool:
        """Whether the session is good for another attack."""
        self._world.begin()
        start = len(session.text)
        goes_on = self._attack(session, attack)
        if attack.name not in self._outcome.escaped:
            self._note(attack, session.text[start:])
        self._world.end_attackers()
        return goes_on

    def _attack(self, session: Session, attack: Attack) -> bool:
        """Types it, judges it when it stands still; whether the shell came back."""
        script = Path(self._world.values["ws"]) / "attack.py"
        script.write_text(self._world.fill(PRELUDE + attack.python))
        self._world.own(script)
        seen = ""
        with suppress(Ended):
            session.type(self._world.fill(f"{attack.typed}; echo en''d-@nonce@"))
            seen = session.see(self._world.fill("holding-@nonce@|end-@nonce@"), BOUND_SECONDS)
            if seen.startswith("holding"):
                self._note(attack, session.text)
                session.type("")
                seen = session.see(self._world.fill("end-@nonce@"), BOUND_SECONDS)
        if not seen:
            self._outcome.lost.append(attack.name)
            self._outcome.notes[attack.name] = "the shell did not come back: " + session.text[-200:]
        return bool(seen)

    def _note(self, attack: Attack, text: str) -> None:
        if attack.succeeded(self._world, text):
            self._outcome.escaped.append(attack.name)

    def _works(self, session: Session, work: Work) -> bool:
        project = Path(self._world.values["ws"])
        for name, text in (("work.py", work.python), ("work.c", works.PROGRAM)):
            (project / name).write_text(text)
            self._world.own(project / name)
        for step in (*work.steps, See(PROMPT)):
            match step:
                case Type(text):
                    session.type(text)
                case Press(key):
                    session.press(key)
                case Resize(rows, cols):
                    session.resize(rows, cols)
                case See(pattern):
                    if session.see(pattern).strip() in ("", works.OVER):
                        self._outcome.failed.append(work.name)
                        self._outcome.notes[work.name] = f"not seen: {pattern}; but: {session.text[-300:]!r}"
                        return False
        return True
