"""Finds out what became of a command whose end was not reported: decides, from the kernel's evidence, what to do next.

Marks can be lost: the shell was replaced by another one, its hooks were taken away, it can open no file. What it does
is then asked of the kernel (who leads the terminal, in which mode it is, whether the shell sleeps in reading it) and of
the shell itself. Time only says when to look again. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

LOOK_SECONDS = 0.3
"""Between two looks. Nothing is done before two of them agree, with no output between."""


class Step(Enum):
    """What the owner of the terminal is to do."""

    WAIT = auto()
    CONTINUE = auto()
    """Continue the stopped shell: nobody else can."""
    STARTED = auto()
    """The command runs, only its start mark was lost."""
    ASK = auto()
    """Press the key that only a prompt answers."""
    PROBE = auto()
    """Have the shell say what became of the command."""
    CLEAR = auto()
    """The same after Ctrl-C, which ends a line that continues."""
    REINTEGRATE = auto()
    """The same after the integration was read again."""
    RESTORE = auto()
    """The same after whatever hides the shell's own builtins was taken away."""
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the kernel says of a session's shell at one moment.

    ``leads``: it has the terminal. ``reads``: the terminal is in its prompt's mode, too, and it sleeps in reading it,
    with nothing unread: at its prompt, or for a command that asks with the shell's own line editor. ``executing``: it
    has the command file open; None: this shell would not show it. ``replaced``: it is another program than was started.
    ``stopped``: by a signal. ``at_prompt``: it reads in the place in its program where it reads at its prompt; no
    command reads there. ``switches``: how often it went to sleep, which shows whether it has read what was typed.
    """

    leads: bool
    reads: bool
    stopped: bool
    executing: bool | None
    replaced: bool
    printed: int
    at_prompt: bool = False
    switches: int = 0


PROVEN = (Step.PROBE, Step.CLEAR, Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP)
REPLACED = (Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP)
ASKED = (Step.ASK, Step.ASK)
UNKNOWN = ()
"""For a shell that cannot be asked, when nothing shows that it is at its prompt."""

NOT_STARTED = (*ASKED, Step.CLEAR, Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP)


class Recovery:
    """Of one command, or of a shell that starts. Show it what was seen, in order; it names the next step.

    ``in_vain``: a shell that reads was asked whether it is at its prompt and did not answer, so the command reads.
    """

    def __init__(self) -> None:
        self.prompt = False
        self._seen: Evidence | None = None
        self._begin_anew()

    def confirm(self) -> None:
        """A prompt was shown since the command began. Only one that answers is proof: the others may be old ones."""
        self.prompt = True
        self._answered = self._answered or self.asking

    @property
    def asking(self) -> bool:
        """Whether something was typed to find out, and may still be answered."""
        return self._taken > 0 and not self.in_vain

    def again(self) -> None:
        """The command is begun once more."""
        self.prompt = False
        self._seen = None
        self._begin_anew()

    def untaken(self) -> None:
        """The last step could not be taken: it counts for nothing."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.in_vain = False
        self._ladder: tuple[Step, ...] = ()
        self._taken = 0
        self._switches = -1
        self._answered = False

    def next(self, seen: Evidence, *, started: bool, answers: bool) -> Step:
        """The step to take; ``answers``: the shell knows the key that only a prompt answers."""
        before = self._seen
        self._seen = seen
        if seen.stopped:
            return Step.CONTINUE
        if not seen.leads or (self.in_vain and seen != before):
            self._begin_anew()
        if not seen.reads:
            return Step.WAIT
        if seen.executing:
            return Step.WAIT if started else Step.STARTED
        if seen.switches == self._switches or (not self._taken and seen != before):
            return Step.WAIT
        return self._climb(seen, started, answers)

    def _climb(self, seen: Evidence, started: bool, answers: bool) -> Step:
        ladder = self._chosen(seen, started, answers)
        if ladder is not self._ladder:
            self._ladder = ladder
            self._taken = 0
        if self._taken == len(ladder):
            self.in_vain = True
            return Step.WAIT
        self._taken = self._taken + 1
        self._switches = seen.switches
        return ladder[self._taken - 1]

    def _chosen(self, seen: Evidence, started: bool, answers: bool) -> tuple[Step, ...]:
        if seen.replaced:
            return REPLACED
        if seen.executing is False or (started and seen.at_prompt) or self._answered or (self.prompt and not answers):
            return PROVEN
        if started:
            return ASKED if answers else UNKNOWN
        return NOT_STARTED
