"""Settings: layers, refusals that name the nearest setting, the shipped examples, the runtime directory."""

from __future__ import annotations

import json
import os
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.config import config, settings
from ai_session.errors import ConfigInvalid, RuntimeDirectoryUnsafe
from ai_session.system.runtime_directory import candidates

ROOT = Path(__file__).parents[4]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_file_or_variables_the_defaults_hold(tmp_path: Path) -> None:
    assert config.load(environ={"HOME": str(tmp_path)}) == settings.Settings()


def test_each_layer_goes_before_the_one_below(tmp_path: Path) -> None:
    write(tmp_path / ".config/ai-session/config.toml", "[session]\nrows = 30\ncols = 90\nmax_sessions = 3\n")
    environ = {"HOME": str(tmp_path), "AI_SESSION_SESSION_COLS": "100", "AI_SESSION_SESSION_MAX_SESSIONS": "4"}
    loaded = config.resolve(environ=environ, overrides={"session.max_sessions": 5, "session.rows": None})
    session = loaded.settings.session
    assert (session.rows, session.cols, session.max_sessions) == (30, 100, 5)
    assert loaded.origins == {
        "session.rows": str(tmp_path / ".config/ai-session/config.toml"),
        "session.cols": "AI_SESSION_SESSION_COLS",
        "session.max_sessions": "a flag",
    }


def test_the_file_may_be_named_by_a_variable_or_a_path(tmp_path: Path) -> None:
    one = write(tmp_path / "one.toml", "[output]\nmax_chars = 300\n")
    two = write(tmp_path / "two.toml", "[output]\nmax_chars = 400\n")
    environ = {"HOME": str(tmp_path), "AI_SESSION_CONFIG": str(one)}
    assert config.load(environ=environ).output.max_chars == 300
    assert config.load(two, environ=environ).output.max_chars == 400


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"gone\.toml does not exist"):
        config.load(tmp_path / "gone.toml", environ={"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "value"),
    [("AI_SESSION_SESSION_USER_RC=false", False), ("AI_SESSION_SESSION_USER_RC=no", False)],
)
def test_variables_are_read_as_toml_or_as_words(tmp_path: Path, text: str, value: object) -> None:
    name, _, raw = text.partition("=")
    assert config.load(environ={"HOME": str(tmp_path), name: raw}).session.user_rc is value


def test_a_text_setting_takes_the_variable_as_it_is(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "AI_SESSION_SESSION_SHELL": '"zsh"'}
    assert config.load(environ=environ).session.shell == '"zsh"'


def test_lists_and_tables_come_from_variables_too(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "AI_SESSION_SESSION_ENV_ALLOW": '["HOME", "LC_*"]',
        "AI_SESSION_SESSION_ENV": '{ A = "1" }',
    }
    session = config.load(environ=environ).session
    assert (session.env_allow, session.env) == (("HOME", "LC_*"), {"A": "1"})


def test_a_file_as_editors_of_windows_write_it_is_read_and_one_in_utf_16_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbf[session]\r\nrows = 30\r\n")
    assert config.load(file, environ={"HOME": str(tmp_path)}).session.rows == 30
    file.write_bytes("[session]\n".encode("utf-16"))
    with pytest.raises(ConfigInvalid, match="is not text in UTF-8"):
        config.load(file, environ={"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "message", "suggestion"),
    [
        ("[session]\nrwos = 3\n", "session.rwos: is not a setting", "did you mean session.rows?"),
        ("[sesion]\nrows = 3\n", "sesion: is not a setting", "did you mean session?"),
        ("[session]\nrows = 1\n", "session.rows: should be at least 2", ""),
        ("[timeouts]\nexecute_seconds = 51\n", "timeouts.execute_seconds: should be at most", ""),
        ("[output]\nmax_chars = 200001\n", "output.max_chars: should be at most", ""),
        ("[session]\nbackend = 'a.b'\n", "session.backend: ", ""),
        ("[session]\nowned_idle_days = inf\n", "session.owned_idle_days: should be a finite number", ""),
        ("session = 3\n", "session: ", ""),
        ("[session\n", "config.toml: ", "fix the file"),
        ("\ufeff[sesion]\n", "sesion: is not a setting", "did you mean session?"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, message: str, suggestion: str) -> None:
    file = write(tmp_path / "config.toml", text)
    with pytest.raises(ConfigInvalid) as caught:
        config.load(file, environ={"HOME": str(tmp_path)})
    assert message in caught.value.message
    assert str(file) in caught.value.message
    assert suggestion in caught.value.suggestion


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "config.toml", "[session]\nrows = 1\ncols = 'x'\nnope = 1\n")
    with pytest.raises(ConfigInvalid) as caught:
        config.load(file, environ={"HOME": str(tmp_path)})
    assert [part.split(":")[0] for part in caught.value.message.split("; ")] == [
        "session.rows",
        "session.cols",
        "session.nope",
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("AI_SESSION_SESSION_ROW", "AI_SESSION_SESSION_ROWS"),
        ("AI_SESSION_OUPUT_MAX_CHARS", "AI_SESSION_OUTPUT_MAX_CHARS"),
        ("AI_SESSION_DAEMON_X", "AI_SESSION_DAEMON_IDLE_EXIT_SECONDS"),
    ],
)
def test_a_variable_that_sets_nothing_is_refused(tmp_path: Path, name: str, near: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.load(environ={"HOME": str(tmp_path), name: "1"})
    assert caught.value.suggestion == f"did you mean {near}?"


def test_variables_a_session_exports_are_left_alone(tmp_path: Path) -> None:
    config.load(environ={"HOME": str(tmp_path), "AI_SESSION_ID": "1", "AI_SESSION_NAME": "build", "AI_SESSION": "1"})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings.Settings().session.rows = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_every_setting_is_described() -> None:
    for section, model in config.sections().items():
        assert model.__doc__, section
        assert all(info.description for info in model.model_fields.values()), section


def test_the_shipped_example_is_the_defaults_with_their_descriptions() -> None:
    text = (ROOT / "config/ai-session.toml").read_text()
    assert f"\n\n{config.render(settings.Settings())}\n# Rules of the policy" in text
    assert config.load(ROOT / "config/ai-session.toml", environ={"HOME": "/nowhere"}) == settings.Settings()


def test_a_commented_file_changes_nothing_until_a_line_is_uncommented(tmp_path: Path) -> None:
    text = config.render(settings.Settings(), commented=True)
    assert tomllib.loads(text) == {name: {} for name in config.sections()}
    file = write(tmp_path / "c.toml", text.replace("# rows = 50", "rows = 60"))
    assert config.load(file, environ={"HOME": "/nowhere"}).session.rows == 60


def test_claude_desktop_example_is_the_form_of_the_protocol() -> None:
    assert json.loads((ROOT / "config/claude_desktop_config.json").read_text()) == {
        "mcpServers": {"ai-session": {"command": "ai-session", "args": ["mcp-server", "--stdio"]}}
    }


words = st.text(st.characters(exclude_categories=["Cs"]) | st.just(" "), max_size=60)


@given(st.dictionaries(words, words, max_size=4), st.lists(words, max_size=30))
def test_rendered_settings_read_back_equal(env: dict[str, str], allow: list[str]) -> None:
    session = settings.SessionSettings(env=env, env_allow=tuple(allow))
    data = tomllib.loads(config.render(settings.Settings(session=session)))
    assert settings.Settings.model_validate(data).session == session


def test_a_directory_in_place_of_the_file_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="is a directory") as caught:
        config.load(environ={"HOME": str(tmp_path), "AI_SESSION_CONFIG": str(tmp_path)})
    assert caught.value.suggestion == "name a file in it"
    (tmp_path / ".config/ai-session/config.toml").mkdir(parents=True)
    with pytest.raises(ConfigInvalid, match="is a directory") as caught:
        config.load(environ={"HOME": str(tmp_path)})
    assert caught.value.suggestion == "move it away"


def test_the_runtime_directory_is_private_and_under_home(home: Path) -> None:
    directory = config.runtime_directory(home, os.getuid())
    assert directory == home / ".local/state/ai-session"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert config.runtime_directory(home, os.getuid()) == directory


def test_a_home_too_long_for_a_socket_uses_the_short_directory() -> None:
    home = Path("/home/" + "x" * 80)
    (only,) = config.runtime_directories(home, 1000)
    assert only.name.startswith("ai-session-1000-")
    assert only != config.runtime_directories(Path("/home/" + "y" * 80), 1000)[0]
    longest = Path("/" + "x" * (100 - len("/.local/state/ai-session/sock") - 1))
    assert len(config.runtime_directories(longest, 0)) == 2
    assert len(config.runtime_directories(longest / "y", 0)) == 1


def test_all_spellings_of_a_home_lead_to_the_same_directory(home: Path) -> None:
    short = home.resolve()
    (long := short / ("x" * 80)).mkdir()
    (link := short / ("l" * 80)).symlink_to(long)
    (around := short / ("s" * 80)).symlink_to(short)
    plain = f"/tmp/ai-session-7-{sha256(bytes(long)).hexdigest()[:8]}"
    for spelling in (f"{long}", f"{long}/", f"/{long}", f"/tmp/..{long}", f"{short}/./{long.name}//", f"{link}"):
        assert [*candidates(spelling, 7)] == [plain], spelling
    for spelling in (f"{around}", f"{short}/" + "./" * 80):
        assert [*candidates(spelling, 7)] == [*candidates(f"{short}", 7)], spelling
    # A link that is short enough is used as it is: its directory survives a reboot.
    (brief := short / "b").symlink_to(long)
    assert [*candidates(f"{brief}", 7)] == [f"{brief}/.local/state/ai-session", plain]


def test_a_home_that_cannot_be_written_uses_the_short_directory(tmp_path: Path) -> None:
    home = write(tmp_path / "a-file-as-home", "")
    directory = config.runtime_directory(home, os.getuid())
    try:
        assert directory == config.runtime_directories(home, os.getuid())[-1]
        assert directory.stat().st_mode & 0o777 == 0o700
    finally:
        directory.rmdir()


def test_a_directory_open_to_others_is_refused(home: Path) -> None:
    directory = config.runtime_directory(home, os.getuid())
    directory.chmod(0o750)
    with pytest.raises(RuntimeDirectoryUnsafe) as caught:
        config.runtime_directory(home, os.getuid())
    assert caught.value.suggestion == f"chmod 700 {directory}"


def test_a_directory_of_another_user_is_refused(home: Path) -> None:
    config.runtime_directory(home, os.getuid())
    with pytest.raises(RuntimeDirectoryUnsafe, match=f"belongs to uid {os.getuid()}, not 4242"):
        config.runtime_directory(home, 4242)


@pytest.mark.parametrize("dangling", [True, False])
def test_a_link_or_a_file_in_its_place_is_refused(home: Path, dangling: bool) -> None:
    location = home / ".local/state/ai-session"
    location.parent.mkdir(parents=True, exist_ok=True)
    if dangling:
        location.symlink_to(home / "nowhere")
    else:
        location.write_text("")
    with pytest.raises(RuntimeDirectoryUnsafe, match="is not a directory"):
        config.runtime_directory(home, os.getuid())
