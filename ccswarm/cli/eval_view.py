"""The output of an evaluation in progress: the current tries on a terminal, else lines, or JSON documents."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentwire.cli.output import remark, say, show_rows, to_person
from agentwire.counts import counted
from agentwire.visible import visible
from ccswarm.cli.output import show_json_line, show_text

if TYPE_CHECKING:
    from ccswarm.evaluation.report import Result

WHY_CHARS = 120
TOTALS = ("entrant", "passed", "attempts", "rate", "calls", "tokens", "dollars", "seconds")


def word(result: Result) -> str:
    """Return the result of a try in a word: passed or failed; for one that the gates should reject, refused or held."""
    if result.expected:
        return "passed" if result.passed else "failed"
    return "held" if result.passed else "refused"


def short_why(why: str) -> str:
    """Return why a try failed, on one line: the gate, and the last line of its output."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    ends = lines[:1] if len(lines) < 2 else [lines[0].partition(", got ")[0], lines[-1]]
    return " … ".join(visible(line[:WHY_CHARS]) for line in ends)


def view_of(suite: str, tries: int, *, as_json: bool) -> View:
    """Return the view for standard output: JSON, a terminal, or plain lines."""
    if as_json:
        return JsonView(suite, tries)
    if to_person():
        from ccswarm.cli.live_view import drawable

        return TerminalView(suite, tries) if drawable() else View(suite, tries)
    return View(suite, tries)


class View:
    """The view that prints a line for each attempt: case, entrant, result, calls, tokens, dollars, seconds, reason."""

    def __init__(self, suite: str, tries: int) -> None:
        self.suite = suite
        self.tries = tries
        self.ended: list[Result] = []

    @contextmanager
    def shown(self) -> Generator[None]:
        """Show the view while the block runs."""
        yield

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """Show an event of an Evaluation."""
        if event == "case.ended":
            self.ended.append(facts["result"])
            self.over(facts["result"])

    def over(self, one: Result) -> None:
        """Show the end of an attempt."""
        why = "" if one.good else short_why(one.why)
        cells = (one.case, one.entrant, word(one), one.calls, one.tokens, f"{one.dollars:g}", f"{one.seconds:.2f}", why)
        show_text("\t".join(visible(str(cell)) for cell in cells) + "\n")

    def end(self, report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Show the end of the evaluation."""
        del rows
        for total in report["totals"]:
            remark(f"{total['entrant']}: {total['passed']} of {total['attempts']} passed{_used(total)}")
        self.print_path(report)

    def print_path(self, report: Mapping[str, Any]) -> None:
        """Print the path of the report, and what was left out."""
        left_out: dict[str, list[str]] = {}
        for one in report["left_out"]:
            left_out.setdefault(f"{one['entrant']}: {one['why']}", []).append(one["case"])
        for why, cases in left_out.items():
            remark(visible(f"left out for {why}: {', '.join(cases)}"))
        if report["results"]:
            remark(f"report: {report['path']}")


class JsonView(View):
    """The view that prints a document for each event, and the report as the last one."""

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        shown = {**facts, **({"result": asdict(facts["result"])} if "result" in facts else {})}
        show_json_line({"event": event, "at": round(time.time(), 3), **shown})

    def end(self, report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        del rows
        show_json_line({"event": "result", **report})


class TerminalView(View):
    """The view on a terminal: finished attempts as lines, and those in progress below them."""

    def __init__(self, suite: str, tries: int) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(suite, tries)
        self._in_progress: dict[tuple[str, str, int], float] = {}
        self._began = time.monotonic()
        self._console = Console(highlight=False)
        self._live = Live(
            get_renderable=self._render,
            console=self._console,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    @contextmanager
    def shown(self) -> Generator[None]:
        with self._live:
            yield

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        key = (facts["case"], facts["entrant"], facts["attempt"])
        if event == "case.started":
            self._in_progress[key] = time.monotonic()
        else:
            self._in_progress.pop(key, None)
        super().tell(event, facts)

    def over(self, one: Result) -> None:
        from rich.text import Text

        used = f"{counted(one.calls, 'call')}, {one.seconds:.1f} s" + (f", {one.tokens} tokens" if one.tokens else "")
        line = Text(f"{word(one):<8}", style="green" if one.good else "red")
        line.append(f"{one.case:<24} {one.entrant:<12} {used}", style="default")
        if not one.good:
            line.append(f"\n        {short_why(one.why)}", style="dim")
        self._console.print(line)

    def end(self, report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        if any(row["attempts"] > 1 for row in rows):
            shown = [{**row, **_rounded(row), "passed": f"{row['passed']}/{row['attempts']}"} for row in rows]
            show_rows(shown, ("case", "entrant", "passed", "calls", "tokens", "dollars", "seconds"))
        shown = [{**total, **_rounded(total), "rate": f"{total['rate']:.0%}"} for total in report["totals"]]
        show_rows(shown, TOTALS)
        say(f"{len(report['results'])} attempts in {time.monotonic() - self._began:.1f} s")
        self.print_path(report)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        bad = sum(not one.good for one in self.ended)
        head = f"{self.suite}  {time.monotonic() - self._began:.0f} s  {len(self.ended)} of {self.tries}"
        lines = [Text(head + (f", {bad} not as expected" if bad else ""), style="bold")]
        for (case, entrant, attempt), began in list(self._in_progress.items()):
            again = f" ({attempt})" if attempt > 1 else ""
            lines.append(Text(f"  {case:<24} {entrant}{again}  {time.monotonic() - began:.0f} s", style="yellow"))
        return Group(*lines)


def _rounded(row: Mapping[str, Any]) -> dict[str, str]:
    return {"dollars": f"{row['dollars']:g}", "seconds": f"{row['seconds']:.1f}"}


def _used(total: Mapping[str, Any]) -> str:
    parts = [counted(total["calls"], "call"), f"{total['seconds']:.1f} s"]
    parts += [f"{total['tokens']} tokens"] if total["tokens"] else []
    parts += [f"${total['dollars']:.4f}"] if total["dollars"] else []
    return ", " + ", ".join(parts)
