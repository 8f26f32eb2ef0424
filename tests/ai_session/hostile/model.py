"""The tables beside this file, a kind of hostility in each, as cases.

A table is a list of groups. A group says ``why`` its cases are hostile and in which ``shells`` they are tried, and may
say how all of them end when ``typed``; a case is a row of these columns, each of which may be left out:

run      the command, by default "true"; ``@HOME@`` is the home of the case, ``@REAL@`` where published packages lie
output   exactly what it prints, with LF line ends; by default nothing. "any": words of the shell's own
exit     its exit code; by default 0. "any", or "lost": the shell that could have told is gone, and the result says so
then     "ended" when it is the end of the shell
cwd      where the session is afterwards; by default where it was
next     what the two commands after it print; by default "next" and a line end, ``@code@`` being their exit codes
typed    how it ends when it is typed at the prompt: its exit code, or "lost" as above; left out, it is not tried
becomes  the shell in which the session goes on; by default the same
keys     pairs of an event and what is typed at it: "running", "foreground" (another program has the terminal),
         "reading" (a program waits for input), "text:…" (it was printed)
start    the start file of the shell, for which more commands are tried; ``named`` says what it does
needs    a path below ``@REAL@`` without which there is nothing to try
failed   true: it once failed; `make test` tries some of each kind and shell, and all of contract/recovery_cases.py
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

HERE = Path(__file__).resolve().parent
KINDS = ("settings", "names", "texts", "traps", "descriptors", "exec", "jobs", "terminal_states", "start_files")
SHELLS = ("bash", "zsh", "dash", "fish")
"""In which every kind is tried; some cases are those of others."""
NEXT = "next\n"


@dataclass(frozen=True, slots=True)
class Case:
    """One row in one shell; None accepts any output or exit code."""

    kind: str
    why: str
    shell: str
    run: str
    output: str | None = ""
    exit_code: int | None = 0
    lost: bool = False
    ended: bool = False
    cwd: str = ""
    next: str | None = NEXT
    typed: int | str | None = None
    becomes: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    start: str = ""
    named: str = ""
    needs: str = ""
    failed: bool = False

    @property
    def name(self) -> str:
        return f"{self.shell}: {self.named or self.run}"


def cases() -> Iterator[Case]:
    """All of every table."""
    for kind in KINDS:
        table = tomllib.loads((HERE / f"{kind}.toml").read_text())
        for group in table["group"]:
            for row in group["cases"]:
                for shell in row.get("shells", group["shells"]):
                    yield _case(kind, group["why"], shell, {"typed": group.get("typed"), **row})


def _case(kind: str, why: str, shell: str, row: Mapping[str, object]) -> Case:
    columns = {"run": "true", **row, "kind": kind, "why": why, "shell": shell}
    columns.pop("shells", None)
    code = columns.pop("exit", 0)
    for name in ("output", "next"):
        if columns.get(name) == "any":
            columns[name] = None
    ended = columns.pop("then", "") == "ended"
    pairs = cast("Sequence[Sequence[str]]", columns.pop("keys", ()))
    return Case(
        **columns,  # pyright: ignore[reportArgumentType]  # a column that is none is refused
        exit_code=code if isinstance(code, int) else None,
        lost=code == "lost",
        ended=ended,
        keys=tuple((event, typed) for event, typed in pairs),
    )
