"""Configuration and plans: where they are found, what they say, every mistake named with its place, the reference."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config import config, parsing, reference_text
from ccswarm.config.files import is_own
from ccswarm.config.settings import Section, ServerSettings, Settings, section_of
from ccswarm.errors import ConfigChanged, ConfigInvalid
from ccswarm.plan import check
from tests.conftest import environment

ROOT = Path(__file__).parents[4]

SMALLEST = """\
[mcp]
servers = [
  { name = "ai-session", command = "ai-session mcp-server --stdio" }
]
"""

STEP = '[[steps]]\nid = "one"\ntool = "ai-session.list_sessions"\n'


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def named(name: str) -> str:
    return f'[swarm]\nname = "{name}"\n'


@pytest.fixture
def here(tmp_path: Path):
    """The current directory, empty; and variables that name a home beside it."""
    before, folder = Path.cwd(), tmp_path / "here"
    folder.mkdir()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def refused(text: str) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        parsing.parse(text, where="c.toml")
    return caught.value.message


def test_the_smallest_file_that_must_work(tmp_path: Path) -> None:
    loaded = config.load(write(tmp_path / "c.toml", SMALLEST))
    assert [server.name for server in loaded.settings.mcp.servers] == ["ai-session"]
    assert config.command_of(loaded.settings.mcp.servers[0]) == ["ai-session", "mcp-server", "--stdio"]
    assert loaded.settings == Settings(mcp=loaded.settings.mcp)
    assert check.plan_problems(loaded.settings, None) == []


def test_commands_are_split_as_a_shell_splits_them() -> None:
    server = ServerSettings(name="s", command="npx -y 'a b' \"c d\"", args=("--x=$HOME", "e f"))
    assert config.command_of(server) == ["npx", "-y", "a b", "c d", "--x=$HOME", "e f"]
    assert config.command_of(ServerSettings(name="s", url="https://x")) == []


def test_without_a_file_all_is_as_by_default(here: Path, environ: dict[str, str]) -> None:
    assert config.load(environ=environ) == config.Loaded(Settings(), None, here)


def test_files_are_found_in_this_order(here: Path, environ: dict[str, str], tmp_path: Path) -> None:
    xdg = tmp_path / "xdg"
    places = [
        (environ, Path(environ["HOME"]) / ".config/ccswarm/config.toml"),
        (environ | {"XDG_CONFIG_HOME": str(xdg)}, xdg / "ccswarm/config.toml"),
        (environ, here / "config/ccswarm.toml"),
        (environ, here / "ccswarm.toml"),
        (environ | {"CCSWARM_CONFIG": str(tmp_path / "named.toml")}, tmp_path / "named.toml"),
    ]
    for count, (variables, file) in enumerate(places):
        write(file, named(f"swarm{count}"))
        loaded = config.load(environ=variables, confirm=lambda _: True)
        assert (loaded.settings.swarm.name, loaded.path, loaded.directory) == (f"swarm{count}", file, file.parent)
    given = write(tmp_path / "given.toml", named("given"))
    assert config.load(given, environ=variables).settings.swarm.name == "given"


def test_within_a_repository_a_file_above_is_found_and_none_above_the_repository(
    here: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here / "ccswarm.toml", named("outside"))
    deep = here / "repository/services/shop"
    (deep / "src").mkdir(parents=True)
    monkeypatch.chdir(deep / "src")
    assert config.load(environ=environ).path is None
    (here / "repository/.git").mkdir()
    assert config.load(environ=environ).path is None
    top = write(here / "repository/config/ccswarm.toml", named("whole"))
    loaded = config.load(environ=environ, confirm=lambda _: True)
    assert (loaded.path, loaded.directory, loaded.begun) == (top, top.parent, True)
    assert (is_own(top, environ), is_own(here / "ccswarm.toml", environ)) == (True, False)
    near = write(deep / "ccswarm.toml", named("shop"))
    with pytest.raises(ConfigChanged):
        config.load(environ=environ)
    assert config.load(environ=environ, confirm=lambda _: True).path == near, "the nearest is the one that counts"


def test_a_relative_xdg_directory_counts_as_not_set(here: Path, environ: dict[str, str]) -> None:
    write(here / "xdg/ccswarm/config.toml", named("wrong"))
    assert config.load(environ=environ | {"XDG_CONFIG_HOME": "xdg"}).path is None


def test_the_environment_of_the_process_is_read_where_none_is_given(here: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "named.toml", named("mine"))
    with environment({"CCSWARM_CONFIG": str(file), "HOME": str(tmp_path), "TOKEN": "t"}):
        assert config.load().settings.swarm.name == "mine"
        assert config.server_environment()["TOKEN"] == "t"
        assert config.state_directory() == tmp_path / ".local/state/ccswarm"


def test_a_named_file_must_exist(here: Path, environ: dict[str, str]) -> None:
    for arguments in ((here / "gone.toml", environ), (None, environ | {"CCSWARM_CONFIG": "gone.toml"})):
        with pytest.raises(ConfigInvalid, match=r"gone\.toml does not exist"):
            config.load(*arguments)


def test_a_file_that_cannot_be_read_is_named(here: Path, environ: dict[str, str]) -> None:
    (here / "ccswarm.toml").mkdir()
    with pytest.raises(ConfigInvalid, match=r"^ccswarm\.toml cannot be read: "):
        config.load(environ=environ)
    (here / "bytes.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigInvalid, match=r"^bytes\.toml is not text in UTF-8"):
        config.load(Path("bytes.toml"))


def test_what_is_not_toml_is_named_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", "[swarm]\nname = swarm\n")
    with pytest.raises(ConfigInvalid, match=r"c\.toml: Invalid value \(at line 2, column 8\)"):
        config.load(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[swrm]", "swrm is not known (did you mean swarm?)"),
        ('[[agentz]]\nname = "a"', "agentz is not known (did you mean agents?)"),
        ('[[agents]]\nname = "a"\nworkspace = "/gone"', "[agents.a] workspace should be 'clone' or 'shared'"),
        ('[swarm]\ntopologie = "ring"', "[swarm] topologie is not known (did you mean topology?)"),
        ("[swarm.budget]\ncall = 3", "[swarm.budget] call is not known (did you mean calls?)"),
        ('[swarm]\ntopology = "cube"', "[swarm] topology should be 'hierarchical', 'mesh', 'ring' or 'star'"),
        ('[[agents]]\nname = "ada"\ngrant = []', "[agents.ada] grant is not known (did you mean grants?)"),
        ('[[agents]]\ntype = "coder"', "[agents.#1] name is missing"),
        ('[[agents]]\nname = "a b"', "[agents.a b] name should be letters, digits, - and _, at most 63"),
        ('[[agents]]\nname = "a"\ngrants = "x"', "[agents.a] grants should be a list"),
        (
            '[[tasks]]\nid = "t"\n' + STEP.replace("[[steps]]", "[[tasks.steps]]") + "expect = { exitcode = 0 }",
            "[tasks.t.steps.one.expect] exitcode is not known (did you mean exit_code?)",
        ),
        (STEP + "for_each = 3", "[steps.one] for_each should be a text or should be a list"),
        (STEP + "args = 3", "[steps.one] args should be a table"),
        ('[[steps]]\nid = "one"', "[steps.one] tool is missing"),
        (STEP + "retry.times = 1000", "[steps.one.retry] times should be at most 100"),
        ("[swarm.budget]\nseconds = inf", "[swarm.budget] seconds should be a finite number"),
        ("[engine]\nretention_days = nan", "[engine] retention_days should be a finite number"),
        (
            STEP + "for_each = [1, 1979-05-27, [inf]]",
            (
                '[steps.one] for_each has a date or time at [1], which JSON does not have: write the text "1979-05-27" '
                "and has inf at [2][0], which JSON does not have"
            ),
        ),
        (
            STEP + "args = { on.t = [07:32:00] }",
            '[steps.one] args has a date or time at on.t[0], which JSON does not have: write the text "07:32:00"',
        ),
        (STEP + "expect.equals = { n = nan }", "[steps.one.expect] equals has nan at n, which JSON does not have"),
        (
            '[[tasks]]\nid = "t"\n[[tasks.gates]]\ntool = "s.t"\nargs = { n = -inf }',
            "[tasks.t.gates.#1] args has -inf at n, which JSON does not have",
        ),
        (
            '[[tasks]]\nid = "t"\nreview.steps = [{ id = "s", tool = "s.t", for_each = [inf] }]',
            "[tasks.t.review.steps.s] for_each has inf at [0], which JSON does not have",
        ),
        ('[[agents]]\nname = "a"\nsettings = { seed = nan }', "[agents.a] settings has nan at seed, which JSON does"),
        ('{ "steps": [{ "id": "one", "tool": "s.t", "args": { "n": NaN } }] }', "[steps.one] args has nan at n"),
        ("mcp = 3", "mcp should be a table"),
        ("agents = [3]", "[agents] #1 should be a table"),
        ('[mcp]\nservers = [{ name = "s", command = "a \'b" }]', "[mcp.servers.s] command cannot be split: No closing"),
        ('[mcp]\nservers = [{ name = "s" }]', "[mcp.servers.s] needs either a command or a url"),
        ('[mcp]\nservers = [{ name = "s", command = "a", url = "b" }]', "[mcp.servers.s] needs either a command or"),
        (
            '[mcp]\nservers = [{ name = "swarm", url = "b" }]',
            ("[mcp.servers.swarm] this name is reserved for the swarm's own"),
        ),
        ('[[agents]]\nname = "orchestrator"', "[agents] the name orchestrator is reserved for running gates"),
        ('[[agents]]\nname = "a"\n[[agents]]\nname = "a"', "[agents] name a occurs 2 times"),
        ('[[tasks]]\nid = "t"\n[[tasks]]\nid = "t"', "[tasks] id t occurs 2 times"),
        (STEP + '[[tasks]]\nid = "main"', "[tasks] id main occurs 2 times"),
        (STEP + STEP, "[steps] id one occurs 2 times"),
        (STEP + 'save_as = "one"', "[steps] save_as one is also the id of a step"),
        (
            STEP + 'save_as = "x"\n' + STEP.replace('"one"', '"two"') + 'save_as = "x"',
            "[steps] save_as x occurs 2 times",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, said: str) -> None:
    assert f"c.toml: {said}" in refused(text)


def test_every_mistake_is_named_at_once() -> None:
    assert refused("color = 1").endswith("c.toml: color is not known"), "what is not near is not proposed"
    message = refused(
        '[mcp]\nservers = [{ name = "s", comand = "x" }, { name = "s", url = "https://u" }]\n'
        '[swarm]\nstrategy = "all"\n[[agents]]\nname = "a"\nbrian = "llm"\n'
        '[[tasks]]\nid = "t"\n[[tasks.steps]]\nid = "x"\n[[tasks.steps]]\nid = "x"\ntool = "s.t"\n'
    )
    assert message.removeprefix("c.toml: ").split("; ") == [
        "[mcp.servers.s] comand is not known (did you mean command?)",
        "[swarm] strategy should be 'parallel', 'sequential' or 'adaptive'",
        "[agents.a] brian is not known (did you mean brain?)",
        "[tasks.t.steps.x] tool is missing",
        "[mcp.servers] name s occurs 2 times",
        "[tasks.t.steps] id x occurs 2 times",
        "[mcp.servers.s] needs either a command or a url",
    ]


def test_steps_at_the_top_are_the_task_main() -> None:
    settings = parsing.parse(STEP + '[[tasks]]\nid = "other"\n')
    assert settings.steps == ()
    assert [(task.id, [step.id for step in task.steps]) for task in settings.tasks] == [
        ("other", []),
        ("main", ["one"]),
    ]


BASE = parsing.parse(
    SMALLEST
    + '[swarm]\nname = "base"\nstrategy = "parallel"\nbudget = { calls = 9, seconds = 3 }\n'
    + '[[agents]]\nname = "ada"\ngrants = ["ai-session.*"]\nsettings = { agents = [1], deep = { a = 1 } }\n'
    + '[[tasks]]\nid = "old"\n'
)


def planned(tmp_path: Path, text: str) -> Settings:
    return config.peek_plan(write(tmp_path / "plan.toml", text), BASE)


def test_an_empty_plan_is_what_is_configured(tmp_path: Path) -> None:
    assert planned(tmp_path, "") == BASE


def test_tables_of_a_plan_go_over_those_of_the_configuration(tmp_path: Path) -> None:
    settings = planned(tmp_path, '[swarm]\nname = "plan"\nbudget = { calls = 1 }\n')
    assert (settings.swarm.name, settings.swarm.strategy) == ("plan", "parallel")
    assert (settings.swarm.budget.calls, settings.swarm.budget.seconds) == (1, 3)
    assert settings.mcp == BASE.mcp


def test_servers_and_agents_of_a_plan_are_added_or_changed(tmp_path: Path) -> None:
    text = (
        '[mcp]\nservers = [{ name = "more", url = "https://x" }, { name = "ai-session", timeout_seconds = 5 }]\n'
        '[[agents]]\nname = "bob"\n[[agents]]\nname = "ada"\napproval = "all"\nsettings = { deep = { b = 2 } }\n'
    )
    settings = planned(tmp_path, text)
    ours, more = settings.mcp.servers
    assert (ours.name, ours.command, ours.timeout_seconds) == ("ai-session", "ai-session mcp-server --stdio", 5)
    assert (more.name, more.url) == ("more", "https://x")
    ada, bob = settings.agents
    assert (ada.grants, ada.approval, bob.grants) == (("ai-session.*",), "all", ())
    assert ada.settings == {"agents": [1], "deep": {"a": 1, "b": 2}}


@pytest.mark.parametrize("text", [STEP, '[[tasks]]\nid = "main"\n'])
def test_the_tasks_of_a_plan_are_all_there_are(tmp_path: Path, text: str) -> None:
    assert [task.id for task in planned(tmp_path, text).tasks] == ["main"]


def test_mistakes_of_a_plan_are_named_with_its_file(tmp_path: Path) -> None:
    for text, said in [
        ("color = 1", "color is not known"),
        ("[swarm]\nnam = 1", "[swarm] nam is not known (did you mean name?)"),
        ('[mcp]\nservers = [{ name = "new" }]', "[mcp.servers.new] needs either a command or a url"),
        ('[mcp]\nservers = [{ name = "ai-session", url = "u" }]', "[mcp.servers.ai-session] needs either"),
        (STEP + STEP, "[steps] id one occurs 2 times"),
    ]:
        with pytest.raises(ConfigInvalid) as caught:
            planned(tmp_path, text)
        assert f"{tmp_path}/plan.toml: {said}" in caught.value.message


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    home, xdg = {"HOME": str(tmp_path)}, {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "xdg")}
    for environ, directory in ((home, tmp_path / ".local/state/ccswarm"), (xdg, tmp_path / "xdg/ccswarm")):
        assert config.state_directory(environ) == config.state_directory(environ) == directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert config.state_directory(home | {"XDG_STATE_HOME": "xdg"}) == tmp_path / ".local/state/ccswarm"


def test_a_state_directory_that_is_not_private_is_refused(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    (tmp_path / "ccswarm").mkdir()
    (tmp_path / "ccswarm").chmod(0o710)
    with pytest.raises(ConfigInvalid) as caught:
        config.state_directory(environ)
    assert caught.value.suggestion == f"chmod 700 {tmp_path}/ccswarm"
    (tmp_path / "ccswarm").rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "ccswarm").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigInvalid, match="is not a directory that belongs to you"):
        config.state_directory(environ)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigInvalid, match="/file/ccswarm: "):
        config.state_directory({"XDG_STATE_HOME": str(tmp_path / "file")})


def sections(model: type[Section] = Settings) -> dict[str, type[Section]]:
    found = {model.__name__: model}
    for field in model.model_fields.values():
        inner = section_of(field.annotation)
        if inner and inner.__name__ not in found:
            found |= sections(inner)
    return found


def test_every_setting_says_what_it_means() -> None:
    for model in sections().values():
        for name, field in model.model_fields.items():
            assert field.description or section_of(field.annotation), f"{model.__name__}.{name}"


def test_the_reference_is_all_settings_and_changes_none() -> None:
    text = reference_text.reference()
    assert tomllib.loads(text) == {}
    for model in sections().values():
        for name, field in model.model_fields.items():
            if not section_of(field.annotation):
                assert re.search(rf"^# {re.escape(field.description or '')}.*\n#{name} = ", text, re.MULTILINE), name
    assert max(map(len, text.splitlines())) <= 120


def test_the_reference_without_its_comment_signs_says_the_defaults() -> None:
    text = re.sub(r"^#(?=[a-z\[])", "", reference_text.reference(), flags=re.MULTILINE)
    data: dict[str, Any] = tomllib.loads(text)
    assert Settings.model_validate({name: data[name] for name in ("swarm", "engine")}) == Settings()
    assert set(data) == set(Settings.model_fields)
    server, agent, task = data["mcp"]["servers"][0], data["agents"][0], data["tasks"][0]
    assert ServerSettings(**server) == ServerSettings(name="NAME")
    assert set(agent) | set(task) >= {"grants", "budget", "steps", "gates"}
    del data["steps"]
    Settings.model_validate(data)


@pytest.mark.parametrize("text", [reference_text.starter(), (ROOT / "config/ccswarm.toml").read_text()])
def test_what_is_shipped_is_right(text: str) -> None:
    settings = parsing.parse(text)
    assert check.plan_problems(settings, None) == []
    assert len(settings.agents) >= 3
    assert len(check.describe(settings)["stages"]) == 2
    assert config.command_of(settings.mcp.servers[0]) == ["ai-session", "mcp-server", "--stdio"]
    assert max(map(len, text.splitlines())) <= 120
