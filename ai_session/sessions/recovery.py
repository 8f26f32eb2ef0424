"""The steps that find out what became of a command whose end was not reported, chosen by the kernel's evidence.

Marks can be lost: the shell was replaced by another one, its hooks were removed, it can open no file. The kernel then
shows what the shell does (which process group leads the terminal, in which mode the terminal is, whether the shell
sleeps reading it), and the shell itself is asked. Time only decides when to check again. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

LOOK_SECONDS = 0.3
"""The time between two checks. Nothing is done before two of them agree, without output between them."""


class Step(Enum):
    """What the session is to do next."""

    WAIT = auto()
    CONTINUE = auto()
    """Continue the stopped shell, because no other process does."""
    STARTED = auto()
    """Record that the command runs: only its start mark was lost."""
    ASK = auto()
    """Press the key that only a prompt answers."""
    PROBE = auto()
    """Ask the shell what became of the command."""
    CLEAR = auto()
    """Ask it after Ctrl-C, which drops an incomplete line."""
    REINTEGRATE = auto()
    """Ask it after the integration was read again."""
    RESTORE = auto()
    """Ask it after the functions and aliases that hide the shell's builtins were removed."""
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the kernel shows of a session's shell at one moment.

    ``leads``: it has the terminal. ``reads``: the terminal is also in the mode of its prompt, and it sleeps reading it,
    with nothing unread: at its prompt, or for a command that reads with the shell's own line editor. ``executing``: it
    has the command file open; None if this shell does not keep it open. ``replaced``: it is not the program that was
    started. ``stopped``: by a signal. ``printed``: the end of its output. ``at_prompt``: it reads at the position in
    its program at which it reads its prompt; no command reads there. ``edited``: if it reads, it does so with its line
    editor, or has none. ``switches``: how often it went to sleep, which shows whether it has read what was typed.
    """

    leads: bool
    reads: bool
    stopped: bool
    executing: bool | None
    replaced: bool
    printed: int
    at_prompt: bool = False
    edited: bool = True
    switches: int = 0


PROVEN = (Step.PROBE, Step.CLEAR, Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP)
REPLACED = (Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP)
ASKED = (Step.ASK, Step.ASK)
UNKNOWN = ()
"""For a shell that cannot be asked, when nothing shows that it is at its prompt."""

NOT_STARTED = (*ASKED, Step.CLEAR, Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP)
UNEDITED = NOT_STARTED[len(ASKED) :]
"""Without the line editor no key is answered."""


class Recovery:
    """The recovery of one command, or of a shell that starts. ``next`` takes the evidence in order.

    ``prompt``: a prompt was shown since the command began. ``in_vain``: a shell that reads was asked whether it is at
    its prompt and did not answer, so the command reads.
    """

    def __init__(self) -> None:
        self.prompt = False
        self._seen: Evidence | None = None
        self._start_over()

    def confirm(self) -> None:
        """Record a prompt since the command began. It is proof only after a question: others may be old ones."""
        self.prompt = True
        self._answered = self._answered or self.asking

    @property
    def asking(self) -> bool:
        """Whether the shell was asked something that it may still answer."""
        return self._taken > 0 and not self.in_vain

    def again(self) -> None:
        """Forget everything, because the command is begun once more."""
        self.prompt = False
        self._seen = None
        self._start_over()

    def untaken(self) -> None:
        """Record that the last step could not be taken."""
        self._start_over()

    def _start_over(self) -> None:
        self.in_vain = False
        self._ladder: tuple[Step, ...] = ()
        self._taken = 0
        self._switches = -1
        self._answered = False
        self._sure = False

    def next(self, seen: Evidence, *, started: bool, answers: bool) -> Step:
        """Return the step to take. ``answers``: the shell knows the key that only a prompt answers."""
        before = self._seen
        self._seen = seen
        if seen.stopped:
            return Step.CONTINUE
        # At its prompt, a ruined shell runs programs for what it is asked: it looks for each name that is gone.
        if (not seen.leads and not self._sure) or (self.in_vain and seen != before):
            self._start_over()
        if not seen.reads:
            return Step.WAIT
        if seen.executing:
            return Step.WAIT if started else Step.STARTED
        if seen.switches == self._switches or (not self._taken and seen != before):
            return Step.WAIT
        return self._climb(seen, started, answers)

    def _climb(self, seen: Evidence, started: bool, answers: bool) -> Step:
        ladder = self._steps_for(seen, started, answers)
        if ladder is not self._ladder:
            self._ladder = ladder
            self._taken = 0
        if self._taken == len(ladder):
            self.in_vain = True
            return Step.WAIT
        self._taken += 1
        self._switches = seen.switches
        self._sure = seen.at_prompt or seen.executing is False
        return ladder[self._taken - 1]

    def _steps_for(self, seen: Evidence, started: bool, answers: bool) -> tuple[Step, ...]:
        if seen.replaced:
            return REPLACED
        if seen.executing is False or (started and seen.at_prompt) or self._answered or (self.prompt and not answers):
            return PROVEN
        if started:
            return ASKED if answers and seen.edited else UNKNOWN
        return NOT_STARTED if seen.edited else UNEDITED
