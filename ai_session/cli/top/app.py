"""The screen of the verb top: a list of what asks and what runs, and below it what is chosen, whole or live."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.timer import Timer
from textual.widgets import DataTable, Static

from agentwire.visible import visible
from ai_session.cli.question_panel import CHOICES, KEYS, NOT_YET, OTHERS, QUIET_SECONDS, UNSIGNED
from ai_session.cli.top import runs as runs_text
from ai_session.cli.top.feed import Event, Feed
from ai_session.cli.top.pane import Pane
from ai_session.console.runs import Runs
from ai_session.errors import AiSessionError

MAX_ROWS = 500
SECONDS_SHOWN = 1.0
"""How often times on the screen go on."""

NAME_SHARE = 3
"""The part of the width that the longest name takes at most: how it stands has to be seen, too."""

ANSI = "ansi-dark"
"""The theme with the colours of the terminal, which earlier versions of the library lack; it needs colours."""

WORDS = {"waiting_input": "waits for input", "exited": "ended"}
SIGNS = {"waiting_input": "⌨", "running": "●", "starting": "●", "stopped": "‖", "exited": "×", "lost": "×"}
TONES = {"waiting_input": "yellow", "stopped": "yellow", "lost": "red", "exited": "dim"}
HINTS = "Enter attach · i interrupt · ↑↓ choose · q quit"
EMPTY = "No sessions. Open one: ai-session new"
NOT_WHOLE = "read it to the end: PgDn"

Facts = Mapping[str, Any]


class Top(App[None]):
    """Runs until q, or until there is no daemon any more; ``ended`` then says why."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; text-style: bold; }
    #list { height: auto; max-height: 40%; overflow-x: hidden; scrollbar-size-vertical: 1; }
    #name { height: 1; background: $panel; }
    #pane, #question { height: 1fr; }
    #hints { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", priority=True),
        Binding("i", "interrupt"),
        *(
            Binding("escape" if key == "\x1b" else key, f"answer('{key if key != chr(27) else 'escape'}')")
            for key in KEYS
        ),
        Binding("pagedown", "read_on(1)", priority=True),
        Binding("pageup", "read_on(-1)", priority=True),
    ]

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs_program = runs
        self._stop_hearing: Callable[[], object] = lambda: None
        self._runs: dict[str, Facts] = {}
        self._asked_in_runs: dict[str, Facts] = {}
        self._whole = True
        self._paged = ""
        self.ended: AiSessionError | None = None
        self._feed = Feed()
        self._table: DataTable[Text] = DataTable(id="list", cursor_type="row", show_header=False)
        self._sessions: dict[str, Facts] = {}
        self._commands: dict[str, Facts] = {}
        self._questions: dict[str, Facts] = {}
        self._later: set[str] = set()
        self._chosen = ""
        self._unheard = {"daemon", "runs"}
        """Who has not said yet what there is. The first row is chosen until they have, or a key is pressed."""
        self._stream: int | None = None
        self._streams: set[int] = set()
        self._shown_at = self._last_key = 0.0
        self._quiet_seconds = self._pressed_at = 0.0
        self._arming: Timer | None = None
        self._remark = ""

    def compose(self) -> ComposeResult:
        """The widgets, from top to bottom."""
        yield Static(id="head")
        yield self._table
        yield Static(id="name")
        yield Pane(id="pane")
        yield VerticalScroll(Static(id="text"), id="question", can_focus=False)
        yield Static(id="hints")

    def on_mount(self) -> None:
        """Begin to listen."""
        if not self.no_color and ANSI in self.available_themes:
            self.theme = ANSI
        self._table.add_column("", width=1)
        self._table.add_columns("name", "state", "about")
        self._table.focus()
        self._list()
        self._listen()
        self._stop_hearing = self._runs_program.hear(self._hear_of_runs)
        self._learn_runs()
        self.set_interval(SECONDS_SHOWN, self._list)

    async def on_unmount(self) -> None:
        """The program that tells of runs ends, too, and is not started again because it has ended."""
        self._stop_hearing()
        await self._runs_program.close()

    async def on_event(self, event: events.Event) -> None:
        """Notes how long no key was pressed before this one: what is typed for something else must not answer."""
        if (
            isinstance(event, events.Key) and event.time != self._pressed_at
        ):  # it comes by here once more on its way back
            self._pressed_at = event.time
            now = time.monotonic()
            self._quiet_seconds = now - max(self._last_key, self._shown_at)
            self._last_key = now
            self._remark = ""
            self._unheard.clear()
            self._arm()
        await super().on_event(event)

    def _arm(self) -> None:
        """Say when keys answer again."""
        if self._arming is not None:
            self._arming.stop()
        self._arming = self.set_timer(QUIET_SECONDS, self._show_hints)

    @work
    async def _listen(self) -> None:
        try:
            async for event in self._feed.events():
                self._hear(event)
        except AiSessionError as error:
            self.ended = error
            self.exit()

    def _hear(self, event: Event) -> None:
        facts, pane = event.facts, self.query_one(Pane)
        match facts["event"]:
            case "connected":
                self._stream = None
                self._begin()
            case "changes":
                for change in facts["changes"]:
                    self._changed(change)
                self._list()
            case "output" | "screen" if facts["stream"] == self._stream:
                size = (facts["rows"], facts["cols"]) if facts["event"] == "screen" else None
                pane.draw(event.data, size)
                self._feed.tell("acknowledge", stream=self._stream, offset=facts["next"])
            case "size" if facts["stream"] == self._stream:
                pane.resized(facts["rows"], facts["cols"])
            case "cursor_expired":
                self._begin()
            case _:
                pass

    @work(exclusive=True, group="begin")
    async def _begin(self) -> None:
        """All anew, of a daemon that was not heard before."""
        try:
            await self._feed.ask("changes")
            await self._learn()
        except AiSessionError as error:
            self._say(error)
            return
        self._list()
        self._unheard.discard("daemon")
        self._look()

    async def _learn(self) -> None:
        listed = await self._feed.call("list_sessions")
        self._sessions = {one["session_id"]: one for one in listed["sessions"]}
        ran = await self._feed.call("query_commands", count=MAX_ROWS)
        self._commands = {one["session_id"]: one for one in reversed(ran["commands"])}
        await self._learn_questions()

    async def _learn_questions(self) -> None:
        asked = (await self._feed.ask("approvals"))["questions"]
        self._questions = {one["question_id"]: one for one in asked}

    def _changed(self, change: Facts) -> None:
        session_id = change.get("session_id", "")
        match change["kind"]:
            case "session" if change.get("gone"):
                self._sessions.pop(session_id, None)
            case "session" if session_id in self._sessions:
                self._sessions[session_id] = {**self._sessions[session_id], **change}
            case "session" | "questions":
                self._learn_anew()
            case "command":
                self._learn_command(session_id)
            case _:
                pass

    @work(exclusive=True, group="learn")
    async def _learn_anew(self) -> None:
        try:
            await self._learn()
        except AiSessionError as error:
            self._say(error)
        self._list()

    @work
    async def _learn_command(self, session_id: str) -> None:
        try:
            ran = await self._feed.call("query_commands", session_id=session_id, count=1)
        except AiSessionError:
            return  # gone meanwhile
        if ran["commands"]:
            self._commands[session_id] = ran["commands"][0]
            self._list()

    def _hear_of_runs(self, _: Facts) -> None:
        self._learn_runs()

    @work(exclusive=True, group="runs")
    async def _learn_runs(self) -> None:
        listed, asked = [await self._runs_program.ask(what, {}) for what in ("list", "questions")]
        self._runs = {one["run"]: one for one in runs_text.listed(listed.get("result", {}).get("runs", []))}
        self._asked_in_runs = {one["id"]: one for one in asked.get("result", {}).get("questions", [])}
        self._list()
        self._unheard.discard("runs")
        if self._chosen in self._runs:
            self._look()

    def _list(self) -> None:
        """Draw the list anew. What is chosen stays chosen, whatever comes before it, once all were heard."""
        self._choose_highlighted()
        waiting = [one for name, one in self._questions.items() if name not in self._later]
        in_runs = [one for name, one in self._asked_in_runs.items() if name not in self._later and one["answers"]]
        sessions = sorted(self._sessions.values(), key=lambda one: one["name"])
        rows = {one["question_id"]: self._question_row(one) for one in waiting}
        rows |= {one["id"]: runs_text.question_row(one) for one in in_runs}
        rows |= {name: runs_text.run_row(one) for name, one in self._runs.items()}
        rows |= {one["session_id"]: self._session_row(one) for one in sessions[:MAX_ROWS]}
        first = next(iter(rows), "")
        if self._chosen not in rows or (self._unheard and self._chosen != first):
            self._choose(first)
        table = self._table
        self._fit(rows.values())
        with self.batch_update():
            table.clear()
            for key, cells in rows.items():
                table.add_row(*cells, key=key)
            if self._chosen in rows:
                table.move_cursor(row=table.get_row_index(self._chosen))
        open_ones = len(waiting) + len(in_runs)
        asks = f"{open_ones} waiting for your answer" if open_ones else "nothing waits for your answer"
        count = f"{len(sessions)} session{'' if len(sessions) == 1 else 's'}"
        if going := sum(one["status"] not in runs_text.OVER for one in self._runs.values()):
            count += f", {going} run{'' if going == 1 else 's'}"
        head = Text.assemble(f"ai-session  {count}, ", (asks, "yellow" if open_ones else ""))
        self.query_one("#head", Static).update(head)
        self._show_hints()

    def _fit(self, rows: Collection[tuple[Text, ...]]) -> None:
        """Cut names that are long, and of what is shown behind them what finds no room; that it was cut is seen."""
        most = max(self.size.width // NAME_SHARE, 1)
        for _, name, *_ in rows:
            name.truncate(most, overflow="ellipsis")
        taken = sum(max((cells[column].cell_len for cells in rows), default=0) for column in range(3))
        room = self.size.width - taken - 4 * 2 * self._table.cell_padding - self._table.scrollbar_size_vertical
        for *_, about in rows:
            about.truncate(max(room, 1), overflow="ellipsis")

    def _question_row(self, question: Facts) -> tuple[Text, ...]:
        session = self._sessions.get(question.get("session_id") or "", {}).get("name", "")
        lines = [line.strip() for line in question["message"].split("\n") if line.startswith("    ") and line.strip()]
        about = lines[0] if lines else question["message"].strip().partition("\n")[0]
        return (
            Text("◆", "bold yellow"),
            Text(visible(session or question["client"] or "a client")),
            Text("asks you", "yellow"),
            Text(visible(about)),
        )

    def _session_row(self, session: Facts) -> tuple[Text, ...]:
        state: str = session["state"]
        command = self._commands.get(session["session_id"], {})
        word, tone = WORDS.get(state, state), TONES.get(state, "")
        if state == "ready" and command.get("exit_code"):
            word, tone = f"exit {command['exit_code']}", "red"
        elif command.get("status") == "running" and state != "exited":
            word = f"{word} {span(time.time() - command['started_at'])}"
        if who := session.get("typing_by"):
            word, tone = f"{who} types", "blue"
        text: str = command.get("command", "").partition("\n")[0] or session["working_directory"]
        return Text(SIGNS.get(state, "○"), tone), Text(session["name"]), Text(visible(word), tone), Text(visible(text))

    def on_data_table_row_highlighted(self) -> None:
        """Another row is chosen, by the person or because the list was drawn anew."""
        self._choose_highlighted()

    def _choose_highlighted(self) -> None:
        """What the person moved to. The table is asked: a list drawn before its message arrives would move back."""
        if self._table.row_count:
            key = self._table.coordinate_to_cell_key(self._table.cursor_coordinate).row_key.value or ""
            if key != self._chosen:
                self._unheard.clear()
                self._choose(key)

    def on_data_table_row_selected(self) -> None:
        """Enter."""
        if session := self._sessions.get(self._chosen):
            with self.suspend():
                subprocess.run([sys.executable, "-P", "-m", "ai_session", "attach", session["name"]], check=False)
            self.refresh()

    def _choose(self, key: str) -> None:
        self._chosen = key
        self._shown_at = time.monotonic()
        self._arm()
        self._look()

    @work(exclusive=True, group="look")
    async def _look(self) -> None:
        """Show what is chosen."""
        self._stream = None
        for stream in self._streams:
            self._feed.tell("close_stream", stream=stream)
        self._streams.clear()
        self._show_hints()
        page = await self._page()
        pane, scroll, name = (
            self.query_one(Pane),
            self.query_one("#question", VerticalScroll),
            self.query_one("#name", Static),
        )
        pane.display = page is None
        scroll.display = page is not None
        if page is not None:
            title, text = page
            name.update(Text(f" {visible(title)}"))
            self.query_one("#text", Static).update(text)
            if self._paged != self._chosen:
                scroll.scroll_home(animate=False)
            self._paged = self._chosen
            self._show_hints()
            return
        pane.clear("" if self._sessions else EMPTY)
        session = self._sessions.get(self._chosen)
        name.update(Text(f" {session['name']}  {session['working_directory']}" if session else ""))
        if session is None:
            return
        try:
            begun = await self._feed.ask("stream", session=session["session_id"])
        except AiSessionError as error:
            pane.clear(str(error))
            return
        self._stream = begun["stream"]
        self._streams.add(begun["stream"])

    async def _page(self) -> tuple[str, Text] | None:
        """Title and text of a question or a run; None where a session is chosen."""
        if question := self._questions.get(self._chosen):
            title = f"{question['client'] or 'a client'} asks, in {question['directory']}"
            return title, Text(visible(question["message"].expandtabs(), lines=True))
        if asked := self._asked_in_runs.get(self._chosen):
            text = runs_text.asked(asked)
            self._whole = True
            if asked["merges"]:
                self._whole = False
                text, self._whole = await self._changes(asked)
            return f"{asked['agent']} in {asked['task'] or asked['run']}", Text(visible(text.expandtabs(), lines=True))
        if run := self._runs.get(self._chosen):
            found = await self._runs_program.ask("run", {"run": self._chosen})
            text = runs_text.page(found["result"]) if "result" in found else Text(visible(found["error"]["message"]))
            return f"{run['name'] or run['run']}  {run['workspace']}", text
        return None

    async def _changes(self, asked: Facts) -> tuple[str, bool]:
        found = await self._runs_program.ask("diff", {"run": asked["run"], "task": asked["task"]})
        if "result" not in found:
            return found["error"]["message"], False
        return runs_text.changes(found["result"])

    def _show_hints(self) -> None:
        hints = HINTS
        question = self._questions.get(self._chosen) or self._asked_in_runs.get(self._chosen)
        if question is not None:
            quiet = time.monotonic() - max(self._last_key, self._shown_at) >= QUIET_SECONDS
            in_run = runs_text.choices(question, whole=self._whole) if "answers" in question else ""
            hints = (in_run or self._choices(question)) if quiet else NOT_YET
        self.query_one("#hints", Static).update(Text(self._remark or visible(hints)))

    def _choices(self, question: Facts) -> str:
        if question.get("answer", "unsigned") != "unsigned":
            return UNSIGNED.format(question["question_id"])
        words = (CHOICES[scope].format(prefix=visible(question["prefix"])) for scope in question["scopes"])
        return " · ".join([*words, OTHERS])

    async def action_answer(self, key: str) -> None:
        """A key that answers the chosen question."""
        question = self._questions.get(self._chosen) or self._asked_in_runs.get(self._chosen)
        word = KEYS["\x1b" if key == "escape" else key]
        if question is None:
            return
        if word.get("later"):
            self._later.add(self._chosen)
        elif word["allowed"] and not self._may_allow(question, word["scope"]):
            self.bell()
        elif "answers" in question:
            await self._answer_in_run(question, allowed=word["allowed"])
        else:
            await self._answer(question, word)
        self._list()

    async def _answer(self, question: Facts, word: Facts) -> None:
        answer = "approve" if word["allowed"] else "reject"
        scope = {"scope": word["scope"]} if word["allowed"] else {}
        try:
            await self._feed.ask(answer, question_id=question["question_id"], **scope)
            self._questions.pop(question["question_id"], None)
        except AiSessionError as error:
            self._say(error)

    async def _answer_in_run(self, question: Facts, *, allowed: bool) -> None:
        if "once" not in question["answers"]:
            return
        if allowed and question["merges"]:
            done = await self._runs_program.ask("accept", {"run": question["run"], "task": question["task"]})
        else:
            word = {"question": question["id"], "approved": allowed, "scope": "once"}
            done = await self._runs_program.ask("answer", word)
        if "error" in done:
            self._remark = visible(f"{done['error']['message']}; {done['error'].get('suggestion', '')}")
        else:
            self._asked_in_runs.pop(question["id"], None)
            self._remark = visible(done["result"].get("next", ""))

    def _may_allow(self, question: Facts, scope: str) -> bool:
        scroll = self.query_one("#question", VerticalScroll)
        if self._quiet_seconds < QUIET_SECONDS:
            return False  # the hints say so until keys count again
        if scroll.scroll_y < scroll.max_scroll_y:
            self._remark = NOT_WHOLE
        elif "answers" in question:
            return self._whole and scope in question["answers"]
        else:
            return question.get("answer", "unsigned") == "unsigned" and scope in question["scopes"]
        return False

    async def action_interrupt(self) -> None:
        """End what runs in the chosen session."""
        if session := self._sessions.get(self._chosen):
            try:
                await self._feed.call("interrupt_command", session_id=session["session_id"])
            except AiSessionError as error:
                self._say(error)
            self._show_hints()

    def action_read_on(self, pages: int) -> None:
        """More of a long question."""
        scroll = self.query_one("#question", VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 1), animate=False, immediate=True)

    def _say(self, error: AiSessionError) -> None:
        self._remark = visible(f"{error}; {error.suggestion}" if error.suggestion else str(error))


def span(seconds: float) -> str:
    """A time that goes on, in one unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
