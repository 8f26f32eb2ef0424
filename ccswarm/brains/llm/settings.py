"""The settings of an agent whose brain is ``llm``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, cast
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from agentwire.validation import requirement
from ccswarm.config.settings import SECRET_HEADER, JsonTable, Section, section_of
from ccswarm.config.starters import maker_of
from ccswarm.errors import PlanInvalid


class Vendor(NamedTuple):
    """The vendor of a kind of model: its address, and the names of its library's settings. ``key`` and ``elsewhere``
    are the variables for the key and another address. ``version`` is appended to such an address."""

    address: str
    key: str
    elsewhere: str
    package: str = ""
    version: str = ""


_OPENAI = Vendor("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL", "openai")
VENDORS: dict[str, Vendor] = {
    "anthropic": Vendor("https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "anthropic"),
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "gemini": Vendor(
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        version="/v1beta",
    ),
}

RECORDED, GEMINI = "recorded", "gemini"
KINDS = (*VENDORS, RECORDED)
SHAPES = '"anthropic:NAME", "openai:NAME", "openai-responses:NAME", "gemini:NAME" or "recorded:FILE"'

ENV = "env:"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
Effort = Literal["", "minimal", "low", "medium", "high", "xhigh", "max"]

NOT_SETTINGS = ("prompt", "round", "attempt")
"""The names that a task adds to an agent's settings."""


class Price(Section):
    """Dollars for a million tokens."""

    input: float = Field(ge=0, description="Price of input tokens.")
    output: float = Field(ge=0, description="Price of output tokens.")


class Recorded(Section):
    """A call in a recorded reply. An argument that is only ``$N.FIELD`` stands for that field of the result of the
    task's N-th call (``$1.session_id``, ``$2.sessions.0.name``)."""

    tool: str = Field(description="SERVER.TOOL, finish, or recall.")
    arguments: JsonTable = Field(default={}, description="Its arguments.")


class RecordedReply(Section):
    """One answer of a recorded model."""

    text: str = Field(default="", description="Text of the reply.")
    notes: str = Field(default="", description="Notes it writes when the conversation is summarized before this reply.")
    calls: tuple[Recorded, ...] = Field(default=(), description="Calls made in parallel.")
    input_tokens: int = Field(default=0, ge=0, description="Input tokens it counts as.")
    output_tokens: int = Field(default=0, ge=0, description="Output tokens it counts as.")


def _by_task(given: Any) -> Any:
    """Convert a list to the replies for every task."""
    return {"": cast("Sequence[Any]", given)} if isinstance(given, list | tuple) else given


Replies = Annotated[dict[str, tuple[RecordedReply, ...]], BeforeValidator(_by_task)]
"""The replies by task id; "" for all other tasks."""


class Model(Section):
    """A model and its address."""

    model: str = Field(default="", description=f"{SHAPES}.")
    base_url: str = Field(
        default="",
        description="URL of another server with the same API; empty: that in ANTHROPIC_BASE_URL, OPENAI_BASE_URL or "
        "GOOGLE_GEMINI_BASE_URL, or else the vendor's.",
    )
    key: str = Field(
        default="",
        description="Name of the environment variable, or of the keyring's entry, that holds the key; empty: "
        "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, which are sent only to their vendors, or to the address "
        "in the vendor's variable, never to base_url.",
    )
    price: Price | None = Field(
        default=None, description="Price for a model whose price is unknown; overrides a known one."
    )
    max_tokens: int = Field(
        default=16_384, ge=1, description="Maximum number of tokens of one answer, including thinking."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Sampling temperature; not given: the model's default."
    )
    effort: Effort = Field(default="", description="Reasoning effort; empty: the vendor's default.")
    cache: Literal["5m", "1h", "off"] = Field(
        default="5m", description="How long Anthropic caches the conversation; writing an hour's cache costs more."
    )
    images: bool | None = Field(
        default=None,
        description="Whether it gets the images in results; not given: only if the vendor's own API is used.",
    )
    headers: dict[str, str] = Field(default={}, description="HTTP headers; env:NAME is replaced by a variable.")
    body: JsonTable = Field(default={}, description="Fields added to each request, in the API's format.")
    replies: Replies = Field(
        default={}, description="Answers of a recorded model, in order; or a table of such lists by task ID."
    )

    _variable: str = PrivateAttr(default="")

    @property
    def kind(self) -> str:
        """The kind, one of KINDS."""
        return self.model.partition(":")[0] or RECORDED

    @property
    def name(self) -> str:
        """The vendor's name of the model, or the file of a recorded one."""
        return self.model.partition(":")[2]

    @property
    def address(self) -> str:
        """The URL of its API."""
        return self.base_url or VENDORS[self.kind].address

    @property
    def endpoint(self) -> str:
        """The address for people: without a password, with the variable that sets it."""
        parts = urlsplit(self.address)
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        return f"{shown} ({self._variable})" if self._variable else shown

    @property
    def elsewhere(self) -> str:
        """The variable that sets the address; empty if none does."""
        return self._variable

    @property
    def billed_at(self) -> str:
        """The address whose prices apply: the vendor's own, if a variable redirects it."""
        return VENDORS[self.kind].address if self._variable else self.address

    @property
    def key_name(self) -> str:
        """The name of the variable or secret whose value is sent; empty: none is."""
        written = self.key.removeprefix(ENV).removeprefix("$").removeprefix("{").removesuffix("}")
        return written or ("" if self.foreign and not self._variable else VENDORS[self.kind].key)

    @property
    def unsafe(self) -> str:
        """Why no key is sent to the address that a variable sets; empty if it may be sent."""
        parts = urlsplit(self.address)
        if not self._variable or parts.scheme == "https":
            return ""
        if parts.scheme != "http":
            return f"{self._variable} should begin with https://, or http:// for a server on this machine"
        if parts.hostname in LOOPBACK:
            return ""
        return (
            f"{self.endpoint}: keys are sent unencrypted to this machine only: use https://, or set base_url and"
            " key in the agent's settings to send it anyway"
        )

    def with_address(self, variables: Mapping[str, str]) -> Self:
        """Return a copy with the address from its vendor's variable, unless ``base_url`` is set."""
        if self.base_url or self.kind not in VENDORS:
            return self
        vendor = VENDORS[self.kind]
        if not (url := variables.get(vendor.elsewhere, "").strip().rstrip("/")):
            return self
        if not url.endswith(vendor.version):
            url += vendor.version
        found = self.model_copy(update={"base_url": url})
        found._variable = vendor.elsewhere
        return found

    @property
    def sees(self) -> bool:
        """Whether it is shown images."""
        return not self.foreign if self.images is None else self.images

    @property
    def foreign(self) -> bool:
        """Whether the address is not its vendor's."""
        return urlsplit(self.address).hostname != urlsplit(VENDORS[self.kind].address).hostname

    @model_validator(mode="after")
    def _possible(self) -> Self:
        kind, colon, name = self.model.partition(":")
        if not self.model and not self.replies:
            raise ValueError(f"model is missing: {SHAPES}")
        if self.model and kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, n=1)
            maker = "" if colon else maker_of(kind)
            meant = f" (did you mean {maker}:{kind}?)" if maker else f" (did you mean {near[0]}:?)" if near else ""
            raise ValueError(f"model is {self.model!r}: it should be {SHAPES}{meant}")
        if (self.model and not colon) or (self.kind in VENDORS and not name):
            raise ValueError(f"model is {self.model!r}, which names no model: it should be {SHAPES}")
        if self.kind == RECORDED and not name and not self.replies:
            raise ValueError("a recorded model needs a file, or replies")
        if self.base_url and urlsplit(self.base_url).scheme not in ("http", "https"):
            raise ValueError(f"base_url is {self.base_url!r}: it should begin with http:// or https://")
        for name, value in self.headers.items():
            if SECRET_HEADER.search(name) and not value.startswith(ENV):
                raise ValueError(f"headers.{name} should not be written here: refer to a variable, env:NAME")
        return self


def _by_name(given: object) -> object:
    return {"model": given} if isinstance(given, str) else given


class LlmSettings(Model):
    """The settings of an agent."""

    fallback: tuple[Annotated[Model, BeforeValidator(_by_name)], ...] = Field(
        default=(), description="Models to use, in this order, when the previous one cannot answer."
    )
    terminal: bool = Field(
        default=True,
        description="Whether bash, read and edit are offered in a terminal of its own; false: the terminal server's"
        " own tools.",
    )
    max_turns: int = Field(
        default=200, ge=1, description="Maximum number of requests to the model before a task is given up."
    )
    same_failures: int = Field(
        default=5,
        ge=1,
        description="How often in a row the same call may fail before a task is given up; twice as often for a"
        " command that ends with the same exit code.",
    )
    context_chars: int = Field(
        default=400_000, ge=4000, description="Longest conversation; beyond it, older parts are shortened."
    )
    sum_up_at: float = Field(
        default=0.7,
        ge=0,
        le=1,
        description="Share of context_chars at which the model summarizes the conversation; 0: never.",
    )
    tools_chars: int = Field(
        default=200_000,
        ge=1000,
        description="Largest total of the names, descriptions and schemas of its tools, which every request contains;"
        " beyond it, a task fails before the model is asked.",
    )
    answer_chars: int = Field(
        default=16_000, ge=500, description="Characters shown of one tool's output: its beginning and end."
    )
    keep_outputs: int = Field(
        default=3,
        ge=0,
        description="How many of the newest answers keep their outputs whole, at least; older ones become references,"
        " several answers at a time. 0: all.",
    )
    request_timeout_seconds: float = Field(default=900, gt=0, description="Time limit for one answer.")
    idle_seconds: float = Field(default=240, gt=0, description="Longest silence within one answer.")
    retries: int = Field(default=6, ge=0, le=100, description="How often a request is retried with each model.")

    def models(self, variables: Mapping[str, str]) -> tuple[Model, ...]:
        """Return the model and its fallbacks, with the addresses from their vendors' variables."""
        own = Model(**{name: getattr(self, name) for name in Model.model_fields})
        return tuple(model.with_address(variables) for model in (own, *self.fallback))


def read(given: Mapping[str, Any]) -> LlmSettings:
    """Parse the settings of an agent. Raises PlanInvalid, naming every problem."""
    plain = {name: value for name, value in given.items() if name not in NOT_SETTINGS}
    try:
        return LlmSettings.model_validate(plain)
    except ValidationError as error:
        problems = dict.fromkeys(_describe(problem) for problem in error.errors(include_url=False))
        raise PlanInvalid("settings: " + "; ".join(problems), suggestion="ai-session docs brains-llm") from None


def _describe(problem: Any) -> str:
    path = [part for part in problem["loc"] if part != ""]
    if problem["type"] == "extra_forbidden":
        model = _section(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), list(model.model_fields), n=1)
        return f"{'.'.join(map(str, path))} is not known" + (f" (did you mean {near[0]}?)" if near else "")
    return " ".join(filter(None, (".".join(map(str, path)), requirement(problem))))


def _section(path: list[Any]) -> type[Section]:
    found: type[Section] = LlmSettings
    for part in path:
        field = found.model_fields.get(part) if isinstance(part, str) else None
        found = (field and section_of(field.annotation)) or found
    return found
