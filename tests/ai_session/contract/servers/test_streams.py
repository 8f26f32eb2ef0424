"""Many sessions looked at over one connection, and taken over: exact offsets, slow readers, who types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ai_session.client.connection import ControlClient, connect
from ai_session.servers.control.streams import LEAST_WINDOW_BYTES, MOST_STREAMS
from ai_session.terminal.marks import strip_marks
from ai_session.terminal.screen import Screen
from tests.ai_session.support.mcp_client import living_in, running_daemon, runtime
from tests.ai_session.support.person_client import Person
from tests.conftest import environment
from tests.support.bounds import pause

WINDOW = LEAST_WINDOW_BYTES


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    with running_daemon(homes) as home:
        yield home


def session(person: Person, name: str = "s") -> str:
    """A new one's id."""
    made = person.call("create_session", name=name, shell="bash", backend="pty")
    return made["structured"]["session_id"]


def watched(person: Person, name: str) -> int:
    """A stream whose first screen has come, so that all that is printed from now on comes as output."""
    stream = person.done("stream", session=name)["stream"]
    person.event("screen", stream)
    return stream


def printed(daemon_home: Path, session_id: str, start: int, end: int) -> bytes:
    """What the log has between two offsets, without marks."""
    folder = runtime(daemon_home) / "sessions" / session_id
    nonce = json.loads((folder / "spec.json").read_text())["nonce"]
    return strip_marks((folder / "log").read_bytes()[start:end], nonce)


@contextmanager
def attached(daemon_home: Path) -> Iterator[ControlClient]:
    """A terminal that is attached to ``s``, as by the verb."""
    with environment(living_in(daemon_home)):
        client = connect(start=False)
    with client:
        client.attach("s", rows=40, cols=100, read_only=False)
        yield client


def run(person: Person, session_id: str, command: str) -> str:
    """The code of the error with which a command is refused, else what it printed."""
    done = person.call("execute_command", session_id=session_id, command=command)["structured"]
    return done["error"]["code"] if "error" in done else done["output"]


def test_every_byte_comes_once_however_often_the_connection_is_torn(daemon_home: Path, person: Person) -> None:
    made = session(person)
    first = person.call("get_session_info", session_id=made)["structured"]["output_bytes"]
    run(person, made, "for i in {1..40}; do seq 1 1000; printf '\\e[3%dm' $((i % 8)); done; echo over")
    end = person.call("get_session_info", session_id=made)["structured"]["output_bytes"]
    at, taken, tears = first, b"", 0
    while at < end:
        with Person(daemon_home) as torn:
            stream = torn.done("stream", session="s", offset=at, exact=True, window_bytes=WINDOW)
            assert (stream["offset"], stream["session_id"]) == (at, made)
            for _ in range(1 + tears):
                received = torn.event("output", stream["stream"])
                assert received.facts["offset"] == at, "neither a gap nor a piece twice"
                at, taken = received.facts["next"], taken + received.data
                if at >= end:
                    break
        tears += 1
    assert tears > 3
    assert taken == printed(daemon_home, made, first, at)
    assert b"7777" not in taken


@pytest.mark.parametrize("times", [2, pytest.param(9, marks=pytest.mark.torture)])
def test_a_slow_reader_lags_alone_and_is_then_shown_the_screen(person: Person, daemon_home: Path, times: int) -> None:
    flood, quiet = session(person, "flood"), session(person, "quiet")
    streams = [person.done("stream", session="flood", window_bytes=WINDOW)["stream"] for _ in range(2)]
    keys = watched(person, "quiet")
    with Person(daemon_home) as slow, Person(daemon_home) as typist:
        late = slow.done("stream", session="flood", window_bytes=WINDOW)
        slow.until(
            lambda received: received.facts.get("stream") == late["stream"]
        )  # takes in the screen, and nothing more
        slow.take = lambda received: None  # type: ignore[method-assign]
        typist.done("take_over", session="flood", who="a test")
        person.done("take_over", session="quiet", who="a test")
        drawn = dict.fromkeys(streams, 0)
        for turn in range(times):
            typist.tell("type", b"seq 100001 250000; echo over-$((%d + 1))\n" % turn, session_id=flood)
            # The shell waits for nobody: not for this connection either, which reads nothing meanwhile.
            while f"over-{turn + 1}" not in typist.call("read_screen", session_id=flood)["structured"]["screen"]:
                pause()
            person.tell("type", b"echo answer-$((%d + 1))\n" % turn, session_id=quiet)
            person.output(keys, lambda shown, n=turn: b"answer-%d\r\n" % (n + 1) in shown)
            for stream in streams:
                shown = person.event("screen", stream)
                assert drawn[stream] < shown.facts["offset"]
                drawn[stream] = shown.facts["offset"]
                # The last lines are in a screen, or follow one as output.
                text = shown.data
                while f"over-{turn + 1}".encode() not in text:
                    shown = person.until(lambda received, of=stream: received.facts.get("stream") == of)
                    if shown.facts["event"] == "screen":
                        drawn[stream] = shown.facts["offset"]
                        text = b""
                    text += shown.data
        slow.done("status")
        assert {received.facts["event"] for received in slow.events} <= {"output"}
        assert sum(received.facts["next"] - received.facts["offset"] for received in slow.events) <= WINDOW
        end = person.call("get_session_info", session_id=flood)["structured"]["output_bytes"]
        del slow.take
        for received in slow.events:
            slow.take(received)
        shown = slow.event("screen", late["stream"])
        assert shown.facts["offset"] >= end
        assert f"over-{times}".encode() in shown.data


def test_one_types_and_everybody_is_told_who(person: Person, daemon_home: Path) -> None:
    made = session(person)
    stream = watched(person, "s")
    person.done("take_over", session="s", who="console")
    with Person(daemon_home) as second:
        assert second.done("stream", session="s")["typing_by"] == "console"
        assert second.refused("take_over", session="s", who="phone") == "session_taken_over"
        assert second.refused("type", b"no\n", session_id=made) == "invalid_arguments"
        # Agents, verbs and this connection's own calls are told, and change nothing.
        for tool, arguments in {
            "execute_command": {"command": "echo no"},
            "send_input": {"text": "no\n"},
            "resize_session": {"rows": 10, "cols": 20},
        }.items():
            refused = second.call(tool, session_id=made, **arguments)
            assert refused["structured"]["error"]["code"] == "session_taken_over"
            assert "console has taken over session 's'" in refused["text"]
        assert second.call("get_session_info", session_id=made)["structured"]["typing_by"] == "console"
        person.tell("type", b"echo yes\x1b[?1;2c-$((1 + 1))\necho end-$((1 + 1))\n", session_id=made)
        typed = person.output(stream, lambda shown: re.search(rb"end-2\r\n.*[$#] $", shown, re.DOTALL))
        assert b"yes-2\r\n" in typed, "what a terminal answers is not typed"
        assert b"no" not in typed
        person.done("resize", session_id=made, rows=20, cols=60)
        assert person.event("size", stream).facts["rows"] == 20
        # Taken from them, they hear of it; who goes away gives it back.
        assert second.done("take_over", session="s", who="phone", force=True)["typing_by"] == "phone"
        assert person.event("taken_over").facts == {"event": "taken_over", "session_id": made, "typing_by": "phone"}
        assert person.refused("type", b"no\n", session_id=made) == "invalid_arguments"
        second.done("resize", session_id=made, rows=30, cols=90)
        assert person.event("size", stream).facts["rows"] == 30
    assert person.event("size", stream).facts["rows"] == 50, "with the phone its size has gone"
    assert run(person, made, "stty size; echo free") == "50 200\nfree\n"
    assert "typing_by" not in person.call("get_session_info", session_id=made)["structured"]


def test_looking_changes_nothing_and_tells_of_the_end(person: Person) -> None:
    made = session(person)
    stream = person.done("stream", session=made)
    assert (stream["rows"], stream["cols"], stream["typing_by"]) == (50, 200, "")
    person.call("resize_session", session_id=made, rows=20, cols=70)
    assert person.event("size").facts["cols"] == 70
    person.call("execute_command", session_id=made, command="exit 3")
    ended = person.event("ended").facts
    assert (ended["code"], ended["lost"], ended["text"]) == (3, False, "exit status 3")
    person.call("create_session", name="s")
    assert person.event("restarted").facts["stream"] == stream["stream"]
    assert run(person, made, "stty size") == "20 70\n"
    late = person.done("stream", session=made, exact=True, offset=person.event("output").facts["next"])
    assert person.done("close_stream", stream=stream["stream"]) == {}
    assert person.refused("close_stream", stream=stream["stream"]) == "invalid_arguments"
    person.call("close_session", session_id=made)
    assert person.event("closed").facts["stream"] == late["stream"]
    assert person.refused("stream", session=made) == "session_not_found"


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_another_size_is_followed_by_the_screen_at_that_size_and_by_nothing_of_before(
    person: Person, backend: str
) -> None:
    """However much was printed for the size before, and was not sent yet; who wants every byte gets just those."""
    made = person.call("create_session", name="s", shell="bash", backend=backend)["structured"]["session_id"]
    person.done("take_over", session="s", who="a test")
    exact = person.done("stream", session="s", exact=True)["stream"]
    person.event("screen", exact)
    stream = watched(person, "s")
    take = person.take
    person.take = lambda received: take(received) if received.facts.get("stream") == exact else None  # type: ignore[method-assign]
    person.tell("type", b"seq -f 'line %g' 1 60000; sleep 1000\n", session_id=made)
    person.output(exact, lambda shown: b"line 60000\r\n" in shown)
    for rows, cols in ((12, 40), (40, 120)):
        person.done("resize", session_id=made, rows=rows, cols=cols)
    end = person.call("get_session_info", session_id=made)["structured"]["output_bytes"]
    del person.take
    own = [received for received in person.events if received.facts.get("stream") == stream]
    for received in own:
        take(received)
    while own[-1].facts.get("next", 0) < end or own[-1].facts.get("rows") != 40:
        own.append(person.until(lambda received: received.facts.get("stream") == stream and received not in own))
    names = [received.facts["event"] for received in own]
    assert "output" not in names[names.index("size") :], names
    drawn = Screen(40, 120)
    drawn.feed(own[-1].data)
    shown = person.call("read_screen", session_id="s")["structured"]
    assert "\n".join(drawn.snapshot().lines).rstrip("\n") == shown["screen"].rstrip("\n")
    assert not any(
        received.facts["event"] == "screen" for received in person.events if received.facts.get("stream") == exact
    )


@pytest.mark.torture
def test_streams_of_one_connection_are_bounded(person: Person) -> None:
    session(person)
    for _ in range(MOST_STREAMS):
        person.done("stream", session="s")
    assert person.refused("stream", session="s") == "limit_reached"
    assert person.done("close_stream", stream=3) == {}
    assert person.done("stream", session="s")["stream"] == MOST_STREAMS + 1


def test_what_is_wrong_is_refused_and_the_connection_goes_on(person: Person) -> None:
    made = session(person)
    for offset in (-1, 1 << 40, "1", True, 1.5):
        assert person.refused("stream", session="s", offset=offset) == "invalid_arguments"
    for window in (0, LEAST_WINDOW_BYTES - 1, 1 << 40):
        assert person.refused("stream", session="s", window_bytes=window) == "invalid_arguments"
    assert person.refused("take_over", session="s") == "invalid_arguments"
    assert person.refused("take_over", session="s", who="x" * 81) == "invalid_arguments"
    assert person.done("take_over", session="s", who="\x1b[31mred\n")["typing_by"] == "\\x1b[31mred\\n"
    for rows in (0, 1, 1001, None):
        assert person.refused("resize", session_id=made, rows=rows, cols=80) == "invalid_arguments"
    person.tell("acknowledge", stream=99, offset=5)
    person.tell("type", b"no", session_id="nowhere")
    assert person.done("release", session_id=made) == {}
    assert person.refused("release", session_id=made) == "invalid_arguments"
    unasked = [received.facts for received in person.events if "event" not in received.facts]
    assert [(answer["id"], answer["error"]["code"]) for answer in unasked] == [(None, "invalid_arguments")]


def test_a_client_of_the_version_before_is_served_as_before(daemon_home: Path, person: Person) -> None:
    session(person)
    assert person.hello["protocol"] == [1, 2]
    with Person(daemon_home, version=1) as old:
        assert old.refused("stream", session="s") == "invalid_arguments"
        old.tell("status")
        assert old.next().facts["result"]["version"] == person.hello["version"]
        old.write({"id": 9, "method": "attach", "params": {"session": "s", "rows": 24, "cols": 80}})
        assert old.next().facts == {"id": 9, "result": {}}
    with Person(daemon_home, version=3) as new:
        assert new.done("stream", session="s")["stream"] == 1


def test_who_is_attached_sees_why_keys_do_nothing(daemon_home: Path, person: Person) -> None:
    session(person)
    with attached(daemon_home) as client:
        person.done("take_over", session="s", who="console")
        client.send_frame(b"i", b"echo no-$((1 + 1))\n")
        shown = b""
        for kind, payload in client.frames():
            shown += payload if kind == b"o" else b""
            if b"console has taken over session" in shown:
                break
        assert b"no-2" not in shown
