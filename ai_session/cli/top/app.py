"""The screen of the verb top: a list of questions, runs and sessions, and below it the selected one."""

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
from ai_session.errors import AiSessionError
from ai_session.http.console.runs import Runs

MAX_ROWS = 500
SECONDS_SHOWN = 1.0
"""The interval at which times on the screen are updated."""

NAME_SHARE = 3
"""The longest name takes at most this part of the width: the state has to be visible, too."""

ANSI = "ansi-dark"
"""The theme with the terminal's own colours, which earlier versions of the library lack; it requires colours."""

WORDS = {"waiting_input": "waits for input", "exited": "ended"}
SIGNS = {"waiting_input": "⌨", "running": "●", "starting": "●", "stopped": "‖", "exited": "×", "lost": "×"}
TONES = {"waiting_input": "yellow", "stopped": "yellow", "lost": "red", "exited": "dim"}
HINTS = "Enter attach · i interrupt · ↑↓ choose · q quit"
EMPTY = "No sessions. Open one: ai-session new"
NOT_WHOLE = "read it to the end: PgDn"

Facts = Mapping[str, Any]


class Top(App[None]):
    """Runs until q, or until the daemon ends without a successor; ``ended`` is then the error."""

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
        Binding("pagedown", "scroll_question(1)", priority=True),
        Binding("pageup", "scroll_question(-1)", priority=True),
    ]

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs_program = runs
        self._unsubscribe: Callable[[], object] = lambda: None
        self._runs: dict[str, Facts] = {}
        self._run_questions: dict[str, Facts] = {}
        self._whole = True
        self._paged = ""
        self.ended: AiSessionError | None = None
        self._feed = Feed()
        self._table: DataTable[Text] = DataTable(id="list", cursor_type="row", show_header=False)
        self._sessions: dict[str, Facts] = {}
        self._commands: dict[str, Facts] = {}
        self._questions: dict[str, Facts] = {}
        self._later: set[str] = set()
        self._selected = ""
        self._unloaded = {"daemon", "runs"}
        """The sources that are not loaded yet. The first row stays selected until they are, or a key is pressed."""
        self._stream: int | None = None
        self._streams: set[int] = set()
        self._shown_at = self._last_key = 0.0
        self._quiet_seconds = self._pressed_at = 0.0
        self._quiet_timer: Timer | None = None
        self._remark = ""

    def compose(self) -> ComposeResult:
        """Yield the widgets from top to bottom."""
        yield Static(id="head")
        yield self._table
        yield Static(id="name")
        yield Pane(id="pane")
        yield VerticalScroll(Static(id="text"), id="question", can_focus=False)
        yield Static(id="hints")

    def on_mount(self) -> None:
        """Start receiving events."""
        if not self.no_color and ANSI in self.available_themes:
            self.theme = ANSI
        self._table.add_column("", width=1)
        self._table.add_columns("name", "state", "about")
        self._table.focus()
        self._update_list()
        self._receive()
        self._unsubscribe = self._runs_program.subscribe(self._on_runs_event)
        self._load_runs()
        self.set_interval(SECONDS_SHOWN, self._update_list)

    async def on_unmount(self) -> None:
        """End the program that reports runs, without its end causing a restart."""
        self._unsubscribe()
        await self._runs_program.close()

    async def on_event(self, event: events.Event) -> None:
        """Record how long no key was pressed before this one: keys typed for something else must not answer."""
        if (
            isinstance(event, events.Key) and event.time != self._pressed_at
        ):  # each event passes here a second time as it bubbles up
            self._pressed_at = event.time
            now = time.monotonic()
            self._quiet_seconds = now - max(self._last_key, self._shown_at)
            self._last_key = now
            self._remark = ""
            self._unloaded.clear()
            self._restart_quiet_timer()
        await super().on_event(event)

    def _restart_quiet_timer(self) -> None:
        """Update the hints once keys answer again."""
        if self._quiet_timer is not None:
            self._quiet_timer.stop()
        self._quiet_timer = self.set_timer(QUIET_SECONDS, self._show_hints)

    @work
    async def _receive(self) -> None:
        try:
            async for event in self._feed.events():
                self._handle(event)
        except AiSessionError as error:
            self.ended = error
            self.exit()

    def _handle(self, event: Event) -> None:
        facts, pane = event.facts, self.query_one(Pane)
        match facts["event"]:
            case "connected":
                self._stream = None
                self._load_all()
            case "changes":
                for change in facts["changes"]:
                    self._apply(change)
                self._update_list()
            case "output" | "screen" if facts["stream"] == self._stream:
                size = (facts["rows"], facts["cols"]) if facts["event"] == "screen" else None
                pane.draw(event.data, size)
                self._feed.send_request("acknowledge", stream=self._stream, offset=facts["next"])
            case "size" if facts["stream"] == self._stream:
                pane.resized(facts["rows"], facts["cols"])
            case "cursor_expired":
                self._load_all()
            case _:
                pass

    @work(exclusive=True, group="begin")
    async def _load_all(self) -> None:
        """Load everything from a new daemon."""
        try:
            await self._feed.ask("changes")
            await self._load()
        except AiSessionError as error:
            self._show_error(error)
            return
        self._update_list()
        self._unloaded.discard("daemon")
        self._show_selected()

    async def _load(self) -> None:
        listed = await self._feed.call("list_sessions")
        self._sessions = {one["session_id"]: one for one in listed["sessions"]}
        ran = await self._feed.call("query_commands", count=MAX_ROWS)
        self._commands = {one["session_id"]: one for one in reversed(ran["commands"])}
        await self._load_questions()

    async def _load_questions(self) -> None:
        asked = (await self._feed.ask("approvals"))["questions"]
        self._questions = {one["question_id"]: one for one in asked}

    def _apply(self, change: Facts) -> None:
        session_id = change.get("session_id", "")
        match change["kind"]:
            case "session" if change.get("gone"):
                self._sessions.pop(session_id, None)
            case "session" if session_id in self._sessions:
                self._sessions[session_id] = {**self._sessions[session_id], **change}
            case "session" | "questions":
                self._reload()
            case "command":
                self._load_command(session_id)
            case _:
                pass

    @work(exclusive=True, group="learn")
    async def _reload(self) -> None:
        try:
            await self._load()
        except AiSessionError as error:
            self._show_error(error)
        self._update_list()

    @work
    async def _load_command(self, session_id: str) -> None:
        try:
            ran = await self._feed.call("query_commands", session_id=session_id, count=1)
        except AiSessionError:
            return  # closed meanwhile
        if ran["commands"]:
            self._commands[session_id] = ran["commands"][0]
            self._update_list()

    def _on_runs_event(self, _: Facts) -> None:
        self._load_runs()

    @work(exclusive=True, group="runs")
    async def _load_runs(self) -> None:
        listed, asked = [await self._runs_program.ask(what, {}) for what in ("list", "questions")]
        self._runs = {one["run"]: one for one in runs_text.to_list(listed.get("result", {}).get("runs", []))}
        self._run_questions = {one["id"]: one for one in asked.get("result", {}).get("questions", [])}
        self._update_list()
        self._unloaded.discard("runs")
        if self._selected in self._runs:
            self._show_selected()

    def _update_list(self) -> None:
        """Redraw the list. The selection stays on its row once everything is loaded, whatever is inserted before it."""
        self._select_highlighted()
        waiting = [one for name, one in self._questions.items() if name not in self._later]
        in_runs = [one for name, one in self._run_questions.items() if name not in self._later and one["answers"]]
        sessions = sorted(self._sessions.values(), key=lambda one: one["name"])
        rows = {one["question_id"]: self._question_row(one) for one in waiting}
        rows |= {one["id"]: runs_text.question_row(one) for one in in_runs}
        rows |= {name: runs_text.run_row(one) for name, one in self._runs.items()}
        rows |= {one["session_id"]: self._session_row(one) for one in sessions[:MAX_ROWS]}
        first = next(iter(rows), "")
        if self._selected not in rows or (self._unloaded and self._selected != first):
            self._select(first)
        table = self._table
        self._fit(rows.values())
        with self.batch_update():
            table.clear()
            for key, cells in rows.items():
                table.add_row(*cells, key=key)
            if self._selected in rows:
                table.move_cursor(row=table.get_row_index(self._selected))
        open_ones = len(waiting) + len(in_runs)
        asks = f"{open_ones} waiting for your answer" if open_ones else "nothing waits for your answer"
        count = f"{len(sessions)} session{'' if len(sessions) == 1 else 's'}"
        if going := sum(one["status"] not in runs_text.OVER for one in self._runs.values()):
            count += f", {going} run{'' if going == 1 else 's'}"
        head = Text.assemble(f"ai-session  {count}, ", (asks, "yellow" if open_ones else ""))
        self.query_one("#head", Static).update(head)
        self._show_hints()

    def _fit(self, rows: Collection[tuple[Text, ...]]) -> None:
        """Shorten long names, and descriptions to the remaining width, with an ellipsis."""
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
        """Handle another selected row, chosen by the person or because the list was redrawn."""
        self._select_highlighted()

    def _select_highlighted(self) -> None:
        """Select the row that the person moved to; the table is read, because its message may arrive after a redraw."""
        if self._table.row_count:
            key = self._table.coordinate_to_cell_key(self._table.cursor_coordinate).row_key.value or ""
            if key != self._selected:
                self._unloaded.clear()
                self._select(key)

    def on_data_table_row_selected(self) -> None:
        """Handle Enter."""
        if session := self._sessions.get(self._selected):
            with self.suspend():
                subprocess.run([sys.executable, "-P", "-m", "ai_session", "attach", session["name"]], check=False)
            self.refresh()

    def _select(self, key: str) -> None:
        self._selected = key
        self._shown_at = time.monotonic()
        self._restart_quiet_timer()
        self._show_selected()

    @work(exclusive=True, group="look")
    async def _show_selected(self) -> None:
        self._stream = None
        for stream in self._streams:
            self._feed.send_request("close_stream", stream=stream)
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
            if self._paged != self._selected:
                scroll.scroll_home(animate=False)
            self._paged = self._selected
            self._show_hints()
            return
        pane.clear("" if self._sessions else EMPTY)
        session = self._sessions.get(self._selected)
        name.update(Text(f" {session['name']}  {session['working_directory']}" if session else ""))
        if session is None:
            return
        try:
            opened_stream = await self._feed.ask("stream", session=session["session_id"])
        except AiSessionError as error:
            pane.clear(str(error))
            return
        self._stream = opened_stream["stream"]
        self._streams.add(opened_stream["stream"])

    async def _page(self) -> tuple[str, Text] | None:
        """Return title and text of a question or a run; None if a session is selected."""
        if question := self._questions.get(self._selected):
            title = f"{question['client'] or 'a client'} asks, in {question['directory']}"
            return title, Text(visible(question["message"].expandtabs(), lines=True))
        if asked := self._run_questions.get(self._selected):
            text = runs_text.question_text(asked)
            self._whole = True
            if asked["merges"]:
                self._whole = False
                text, self._whole = await self._changes(asked)
            return f"{asked['agent']} in {asked['task'] or asked['run']}", Text(visible(text.expandtabs(), lines=True))
        if run := self._runs.get(self._selected):
            found = await self._runs_program.ask("run", {"run": self._selected})
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
        question = self._questions.get(self._selected) or self._run_questions.get(self._selected)
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
        """Handle a key that answers the selected question."""
        question = self._questions.get(self._selected) or self._run_questions.get(self._selected)
        word = KEYS["\x1b" if key == "escape" else key]
        if question is None:
            return
        if word.get("later"):
            self._later.add(self._selected)
        elif word["allowed"] and not self._may_allow(question, word["scope"]):
            self.bell()
        elif "answers" in question:
            await self._answer_in_run(question, allowed=word["allowed"])
        else:
            await self._answer(question, word)
        self._update_list()

    async def _answer(self, question: Facts, word: Facts) -> None:
        answer = "approve" if word["allowed"] else "reject"
        scope = {"scope": word["scope"]} if word["allowed"] else {}
        try:
            await self._feed.ask(answer, question_id=question["question_id"], **scope)
            self._questions.pop(question["question_id"], None)
        except AiSessionError as error:
            self._show_error(error)

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
            self._run_questions.pop(question["id"], None)
            self._remark = visible(done["result"].get("next", ""))

    def _may_allow(self, question: Facts, scope: str) -> bool:
        scroll = self.query_one("#question", VerticalScroll)
        if self._quiet_seconds < QUIET_SECONDS:
            return False  # the hints show that until keys answer again
        if scroll.scroll_y < scroll.max_scroll_y:
            self._remark = NOT_WHOLE
        elif "answers" in question:
            return self._whole and scope in question["answers"]
        else:
            return question.get("answer", "unsigned") == "unsigned" and scope in question["scopes"]
        return False

    async def action_interrupt(self) -> None:
        """Interrupt what runs in the selected session."""
        if session := self._sessions.get(self._selected):
            try:
                await self._feed.call("interrupt_command", session_id=session["session_id"])
            except AiSessionError as error:
                self._show_error(error)
            self._show_hints()

    def action_scroll_question(self, pages: int) -> None:
        """Scroll a long question."""
        scroll = self.query_one("#question", VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 1), animate=False, immediate=True)

    def _show_error(self, error: AiSessionError) -> None:
        self._remark = visible(f"{error}; {error.suggestion}" if error.suggestion else str(error))


def span(seconds: float) -> str:
    """Return an increasing duration in one unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
