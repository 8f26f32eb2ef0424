"""What may be set for an agent that thinks, and what keeps it from working."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ccswarm.brains.base import Assignment
from ccswarm.brains.llm.plugin import PLUGIN
from ccswarm.brains.llm.retries import EXPLAINED, TRANSIENT, explain, pause
from ccswarm.brains.llm.settings import KINDS, LlmSettings, Model, Price, Recorded, RecordedReply, read
from ccswarm.config.settings import AgentSettings
from ccswarm.errors import PlanInvalid
from ccswarm.models import ToolInfo
from tests.ccswarm.support.llm_agents import CONTEXT, KEY, recorded, reply, secret

ROOT = Path(__file__).parents[4]
ASSIGNMENT = Assignment("run", "t", "ada", {"text": "Look."}, {}, [ToolInfo("srv", "look")], workspace="/work")


def problems(
    settings: dict[str, Any], known: Callable[[str], str] = secret, *, priced: bool = False
) -> tuple[str, ...]:
    agent = AgentSettings(name="ada", brain="llm", settings=settings)
    return tuple(PLUGIN.problems(agent, known, priced=priced))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, 'model is missing: "anthropic:NAME"'),
        ({"modle": "openai:big"}, "modle is not known (did you mean model?)"),
        ({"model": "openai:big", "temprature": 1}, "temprature is not known (did you mean temperature?)"),
        ({"model": "antropic:big"}, "(did you mean anthropic:?)"),
        ({"model": "openai"}, "names no model"),
        ({"model": "recorded:"}, "a recorded model needs a file, or replies"),
        ({"model": "openai:big", "base_url": "localhost:11434"}, "should begin with http:// or https://"),
        ({"model": "openai:big", "max_turns": 0}, "max_turns should be at least 1"),
        ({"model": "openai:big", "price": {"inptu": 1}}, "price.inptu is not known (did you mean input?)"),
        ({"model": "openai:big", "price": {"input": 1}}, "price.output is missing"),
        ({"model": "openai:big", "fallback": ["opnai:b"]}, "fallback.0 model is 'opnai:b'"),
        ({"model": "openai:big", "fallback": [{"model": "openai:b", "ky": "K"}]}, "fallback.0.ky is not known"),
        ({"replies": [{"text": "a", "cals": []}]}, "replies.0.cals is not known (did you mean calls?)"),
        ({"replies": {"t": [{"calls": [{"tol": "x"}]}]}}, "replies.t.0.calls.0.tol is not known (did you mean tool?)"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], said: str) -> None:
    assert said in "; ".join(problems(given))
    with pytest.raises(PlanInvalid) as refused:
        PLUGIN.begin(replace(ASSIGNMENT, settings=given), CONTEXT)
    assert said in refused.value.message


@pytest.mark.parametrize("section", [Price, Recorded, RecordedReply, Model, LlmSettings])
def test_every_setting_is_described(section: type[Any]) -> None:
    assert all(field.description for field in section.model_fields.values())


def test_models_are_asked_in_order() -> None:
    settings = read({"model": "openai:big", "temperature": 0.5, "fallback": ["anthropic:c", {"model": "openai:d"}]})
    assert [model.model for model in settings.models({})] == ["openai:big", "anthropic:c", "openai:d"]
    assert [model.temperature for model in settings.models({})] == [0.5, None, None]


def test_what_an_assignment_adds_is_no_setting() -> None:
    read({"model": "openai:big", "prompt": "Be neat.", "round": 1, "attempt": 1})


def test_a_key_goes_to_its_maker_unless_it_is_named() -> None:
    own, other = Model(model="anthropic:big"), Model(model="anthropic:big", base_url="http://127.0.0.1:8080")
    assert (own.key_name, other.key_name) == ("ANTHROPIC_API_KEY", "")
    assert Model(model="openai:big", base_url="https://api.openai.com/v1").key_name == "OPENAI_API_KEY"
    assert Model(model="openai:big", base_url="https://proxy.example/v1", key="PROXY").key_name == "PROXY"


VARIABLES = [
    ("anthropic", "ANTHROPIC_BASE_URL", "https://proxy.example", "https://proxy.example"),
    ("openai", "OPENAI_BASE_URL", "http://127.0.0.1:1234/v1/", "http://127.0.0.1:1234/v1"),
    ("openai-responses", "OPENAI_BASE_URL", "http://localhost:1/v1", "http://localhost:1/v1"),
    ("gemini", "GOOGLE_GEMINI_BASE_URL", "http://[::1]:8080", "http://[::1]:8080/v1beta"),
    ("gemini", "GOOGLE_GEMINI_BASE_URL", "https://proxy.example/v1beta", "https://proxy.example/v1beta"),
]


@pytest.mark.parametrize(("kind", "name", "value", "address"), VARIABLES)
def test_the_variables_of_the_makers_libraries_say_where_a_model_is(
    kind: str, name: str, value: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, all_of_them = read({"model": f"{kind}:big"}), dict.fromkeys((one[1] for one in VARIABLES), value)
    (there,) = settings.models({name: value})
    (own,) = settings.models({other: value for other in all_of_them if other != name})
    assert (there.address, there.elsewhere, there.endpoint) == (address, name, f"{address} ({name})")
    assert there.key_name == own.key_name, "the maker's key goes where the maker's variable says"
    assert (own.elsewhere, own.foreign) == ("", False), "another maker's variable says nothing of it"
    (said,) = read({"model": f"{kind}:big", "base_url": "http://127.0.0.1:7/v1"}).models(all_of_them)
    assert (said.address, said.elsewhere, said.key_name) == ("http://127.0.0.1:7/v1", "", ""), "base_url comes first"
    (behind,) = read({"model": "recorded:f", "fallback": [f"{kind}:big"]}).models({name: value})[1:]
    assert behind.address == address, "of models that are asked next, too"
    monkeypatch.setenv(name, value)
    assert problems({"model": f"{kind}:big"}, lambda _: "key") == ()


def test_the_price_of_a_model_that_is_reached_elsewhere_is_its_makers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://proxy.example")
    assert problems({"model": "anthropic:claude-haiku-4-5"}, lambda _: "key", priced=True) == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("http://ann:hunter2@proxy.example/v1", "http://proxy.example/v1 (OPENAI_BASE_URL): keys are sent unencrypted"),
        ("http://127.0.0.1.example/v1", "keys are sent unencrypted to this machine only"),
        ("ftp://proxy.example", "OPENAI_BASE_URL should begin with https://"),
        ("proxy.example/v1", "OPENAI_BASE_URL should begin with https://"),
    ],
)
def test_no_key_goes_unencrypted_where_a_variable_says(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", value)
    (reported,) = problems({"model": "openai:big"}, lambda _: "key")
    assert said in reported
    assert "hunter2" not in reported
    worker_context = replace(CONTEXT, variables={"OPENAI_BASE_URL": value})
    with pytest.raises(PlanInvalid, match="OPENAI_BASE_URL"):
        PLUGIN.begin(replace(ASSIGNMENT, settings={"model": "openai:big"}), worker_context)
    assert problems({"model": "openai:big", "base_url": "http://proxy.example/v1", "key": KEY}) == (), "it was said"


@pytest.mark.parametrize(
    ("model", "meant"),
    [("gpt-5.1", "openai:gpt-5.1"), ("claude-opus-5", "anthropic:claude-opus-5"), ("gemini-3", "gemini:gemini-3")],
)
def test_a_model_without_its_maker_is_given_one_in_the_advice(model: str, meant: str) -> None:
    assert f"(did you mean {meant}?)" in problems({"model": model})[0]


def test_a_key_that_is_not_there_is_named() -> None:
    (said,) = problems({"model": "openai:big"})
    assert "OPENAI_API_KEY is neither set nor in the keyring" in said
    assert "export OPENAI_API_KEY=" in said
    assert ("keyring set" in said) == bool(find_spec("keyring")), "advice that can be followed"
    for key in (KEY, f"${KEY}", f"${{{KEY}}}", f"env:{KEY}"):
        assert problems({"model": "openai:big", "key": key}) == ()
    assert problems({"model": "openai:big", "base_url": "http://127.0.0.1:1/v1"}) == ()
    with pytest.raises(PlanInvalid, match="ANTHROPIC_API_KEY"):
        PLUGIN.begin(replace(ASSIGNMENT, settings={"model": "anthropic:big"}), CONTEXT)


def test_a_cap_in_dollars_needs_a_price() -> None:
    def known(_: str) -> str:
        return "key"

    assert problems({"model": "openai:gpt-4o-mini"}, known, priced=True) == ()
    assert problems({"model": "anthropic:claude-haiku-4-5"}, known, priced=True) == ()
    (said,) = problems({"model": "openai:nobody-knows"}, known, priced=True)
    assert said.startswith("openai:nobody-knows: its price is unknown")
    assert "price = { input = 1.0, output = 5.0 }" in said
    assert "budget = { tokens = 2_000_000 }" in said
    assert problems({"model": "openai:nobody-knows"}, known) == ()
    assert problems({"model": "openai:nobody-knows", "price": {"input": 1, "output": 2}}, known, priced=True) == ()
    local = {"model": "openai:gpt-4o-mini", "base_url": "http://127.0.0.1:1/v1"}
    assert "its price is unknown" in problems(local, known, priced=True)[0], "another's prices are not the maker's"
    assert problems(recorded(reply(text="a")), priced=True) == ()
    capped = replace(ASSIGNMENT, task={"text": "a", "budget": {"dollars": 1}}, settings=local)
    with pytest.raises(PlanInvalid, match="its price is unknown"):
        PLUGIN.begin(capped, CONTEXT)


def test_a_task_without_a_text_is_none() -> None:
    with pytest.raises(PlanInvalid, match="has no text"):
        PLUGIN.begin(replace(ASSIGNMENT, task={"text": " "}, settings=recorded(reply(text="a"))), CONTEXT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trouble", EXPLAINED)
def test_every_trouble_says_what_and_what_to_do(trouble: str, kind: str) -> None:
    said = explain(trouble, "words of the server", Model(model=f"{kind}:big"), 2)
    assert said.startswith(f"{kind}:big ")
    assert "words of the server" in said
    assert "; " in said
    assert "{" not in said


def test_pauses_grow_and_are_bounded_and_the_same_again() -> None:
    assert set(EXPLAINED) >= TRANSIENT
    pauses = [pause("run/t", tries, None) for tries in range(1, 12)]
    assert pauses == [pause("run/t", tries, None) for tries in range(1, 12)]
    assert pauses != [pause("run/u", tries, None) for tries in range(1, 12)]
    assert 1.5 <= pauses[0] <= 2.5
    assert max(pauses) <= 150
    assert 30 <= pause("run/t", 1, 30) <= 33, "what the server asked for"
    assert pause("run/t", 1, 86400) == 900
    assert pause("run/t", 1, -5) >= 0


def test_nothing_heavy_is_loaded_until_a_model_is_asked() -> None:
    """Settings are read, tasks begun and recorded replies given without the libraries of any provider."""
    code = """if True:
        import sys
        from ccswarm.brains.llm.plugin import PLUGIN
        from ccswarm.config.settings import AgentSettings
        for model in ("openai:a", "anthropic:b", "recorded:c"):
            PLUGIN.problems(AgentSettings(name="ada", settings={"model": model}), lambda _: "key", priced=False)
        print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:])))"""
    heavy = ["pydantic_ai", "openai", "anthropic", "genai_prices", "httpx2", "mcp", "dbos"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
