"""The rules for analyzing requirements and a repository without a model. They are two tables: words that are searched,
facts that are compared, and the conclusions from each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

Factor = Literal["technical", "integration", "scalability", "security"]
Level = Literal["low", "medium", "high"]
FACTORS: tuple[Factor, ...] = ("technical", "integration", "scalability", "security")

MOST_POINTS = 10
"""The limit of each factor, which starts at 1."""

LEVELS = ((3.0, "low"), (6.0, "medium"), (8.0, "high"), (10.0, "very high"))
"""The highest score of each level."""

CLAUSE_CHARS, MOST_RULED_OUT = 200, 50
CLAUSE_END = re.compile(r"[.,;:!?()\n]|\b(?:but|and)\b", re.IGNORECASE)
NEEDED = r"(?:need|require|want|include|support)\w*"
RULED_OUT_BEFORE = re.compile(
    rf"(?:\bno(?! (?:more|less|fewer|later|longer|matter))|\bwithout|\bexcluding|(?:\bnot|n't) {NEEDED})"
    r"(?: [\w'-]+){0,2} ?\Z",
    re.IGNORECASE,
)
RULED_OUT_BEHIND = re.compile(rf"(?: [\w'-]+){{0,1}} (?:is|are) (?:not {NEEDED}|out of scope)", re.IGNORECASE)
NEVER_WITHOUT = re.compile(r"(?:\b(?:no|not|none|nobody|nothing|never|cannot)\b|n't\b).*\bwithout\b", re.IGNORECASE)


def ruled_out(text: str, start: int, end: int) -> bool:
    """Report whether the word at this position is excluded: by ``no``, ``without`` or ``not needed`` at most two words
    before it, or ``is out of scope`` after it, in the same clause. A double negation does not exclude it."""
    before = CLAUSE_END.split(text[max(0, start - CLAUSE_CHARS) : start])[-1].split()
    behind = " ".join([".", *CLAUSE_END.split(text[end : end + CLAUSE_CHARS])[0].split()])[1:]
    if RULED_OUT_BEHIND.match(behind):
        return True
    return bool(RULED_OUT_BEFORE.search(" ".join([*before[-4:], ""]))) and not NEVER_WITHOUT.search(" ".join(before))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of requirements. It is found if one of its ``words`` occurs, whole, in any case, and is not ruled out;
    each ``*`` stands for any ending. ``points`` are added to the factors."""

    rule: str
    component: str
    words: str
    points: Mapping[Factor, int]
    challenge: str
    mitigation: str
    severity: Level = "medium"

    @property
    def pattern(self) -> re.Pattern[str]:
        words = (re.escape(word.strip()).replace(r"\*", r"\w*").replace(r"\ ", r"[\s-]+") for word in self._words())
        return re.compile(rf"(?<![\w-])(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)

    def found(self, text: str) -> str:
        """Return the first of the words in ``text`` that is not ruled out, of at most 50 found; else ``""``."""
        words = islice(self.pattern.finditer(text), MOST_RULED_OUT)
        return next((word[0] for word in words if not ruled_out(text, word.start(), word.end())), "")

    def _words(self) -> list[str]:
        return self.words.split(",")


TOPICS = (
    Topic(
        "accounts",
        "Accounts and access",
        "auth*, login, log in, sign in, sign up, signup, sso, oauth*, oidc, saml, password*, jwt, user account*, "
        "role*, "
        "permission*, rbac, 2fa, mfa",
        {"security": 3, "technical": 1},
        "Who may do what has to hold in every call, not only in what is shown",
        "Use a maintained library or provider, check rights at the server, test refusals",
        "high",
    ),
    Topic(
        "payments",
        "Payments",
        "payment*, pay, billing, subscription*, stripe, paypal, invoice*, checkout, refund*, pricing",
        {"security": 2, "integration": 2},
        "Money must be neither lost nor taken twice when a request is repeated",
        "Let the provider hold card data, make every change repeatable by key, verify its webhooks",
        "high",
    ),
    Topic(
        "personal data",
        "Data protection",
        "gdpr, hipaa, pii, personal data, privacy, medical, patient*, health record*, pci, soc 2, compliance, encrypt*",
        {"security": 3},
        "Rules of law say what may be kept, how long, and who may see it",
        "List what is kept and why, encrypt it, write deletion and export first",
        "high",
    ),
    Topic(
        "real time",
        "Live updates",
        "real time, realtime, websocket*, live update*, live chat, livestream*, streaming, chat*, collaborat*, "
        "presence, server sent events",
        {"technical": 2, "scalability": 2},
        "Many open connections, of which any may be lost and come back with something missed",
        "Give messages numbers, let clients ask for what they missed, bound what waits for a slow one",
    ),
    Topic(
        "scale",
        "Scaling",
        "million*, thousands of, concurrent*, high traffic, scal*, low latency, throughput, load balanc*, "
        "high availability, "
        "99.9%, 99.99%, sharding, petabyte*, terabyte*",
        {"scalability": 3, "technical": 1},
        "The load that is named has to be borne, and nobody knows yet by what",
        "Say the load in numbers, measure it early with one path through the whole, then decide",
        "high",
    ),
    Topic(
        "tenants",
        "Tenants",
        "multi tenant*, tenant*, saas, white label, multiple organi*ations",
        {"security": 1, "scalability": 1, "technical": 1},
        "One tenant must never see what is another one's",
        "Decide on the boundary in the data before anything else, and test across it",
        "high",
    ),
    Topic(
        "outside services",
        "Outside services",
        "integrate*, integrations, integration with, webhook*, third party, external service*, external api*, slack, "
        "salesforce, twilio, sendgrid, hubspot, "
        "zapier, google maps, github api, jira, sap",
        {"integration": 3},
        "Services of others are slow, limited, away, and change",
        "One adapter each, with limits of time and retries; a double for tests",
    ),
    Topic(
        "interface",
        "Programming interface",
        "api, apis, rest api*, restful, graphql, grpc, endpoint*, json rpc, mcp, sdk",
        {"integration": 1, "technical": 1},
        "What others call cannot be changed freely any more",
        "Write the contract first, give it a version, test against it",
        "low",
    ),
    Topic(
        "data",
        "Data store",
        "database*, sql, postgres*, mysql, mongodb, sqlite, redis, schema*, persist*, store data, crud, transaction*",
        {"technical": 1, "scalability": 1},
        "The shape of the data outlives the code, and has to change while it is used",
        "Migrations from the first day, constraints in the store, a restore that was tried",
        "low",
    ),
    Topic(
        "migration",
        "Migration",
        "migrat*, legacy, rewrite, port to, replace the, modernis*, moderniz*, upgrade*, refactor*",
        {"technical": 2, "integration": 1},
        "What is there works in ways that nobody wrote down",
        "Pin down what it does with tests first, go in steps that can each be taken back",
        "high",
    ),
    Topic(
        "files",
        "Files and media",
        "upload*, download*, image*, video*, audio, attachment*, pdf*, file storage, s3, thumbnail*, transcod*",
        {"technical": 1, "scalability": 1, "security": 1},
        "Files of strangers are large, broken, or made to harm",
        "Bound size and kind, keep them away from the program, work on them in the background",
    ),
    Topic(
        "search",
        "Search",
        "search*, full text, elasticsearch, opensearch, indexing, indexed, autocomplete, faceted",
        {"technical": 1, "scalability": 1},
        "What is found has to follow what is stored",
        "Begin with what the data store offers; an index of its own only with a way to rebuild it",
        "low",
    ),
    Topic(
        "learning",
        "Models",
        "machine learning, ml, ai, llm*, gpt, recommend*, classif*, predict*, embedding*, training, computer vision, "
        "nlp",
        {"technical": 3, "integration": 1},
        "Its answers are not always right, nor the same twice",
        "Agree on examples that count, measure against them, bound what it costs and may do",
        "high",
    ),
    Topic(
        "jobs",
        "Background work",
        "queue*, background, cron, schedul*, worker*, batch*, async*, pipeline*, etl, event driven, kafka, rabbitmq",
        {"technical": 1, "scalability": 1},
        "Work is lost, or done twice, when a process ends in the middle of it",
        "Make each piece repeatable, keep its state, show what is stuck",
    ),
    Topic(
        "messages",
        "Notifications",
        "notif*, email*, e-mail*, sms, push message*, newsletter*, reminder*",
        {"integration": 1},
        "Messages that were sent cannot be taken back",
        "Send from a queue, once per key; in tests to nobody",
        "low",
    ),
    Topic(
        "screens",
        "User interface",
        "ui, frontend, front end, web app*, website*, dashboard*, page*, react, vue, angular, svelte, next.js, form, "
        "forms, "
        "responsive, accessib*",
        {"technical": 1},
        "What users need is found out late",
        "Show something that works early; test by role and keyboard",
        "low",
    ),
    Topic(
        "mobile",
        "Mobile application",
        "mobile, ios, android, react native, expo, flutter, swiftui, app store, play store",
        {"technical": 2, "integration": 1},
        "Old versions stay installed, and stores have their say",
        "Keep what the server offers compatible, release early to testers",
    ),
    Topic(
        "offline",
        "Work without a network",
        "offline*, sync, syncs, synchroni*, local first, conflict resolution, replicat*",
        {"technical": 3},
        "The same thing is changed in two places",
        "Decide what wins for each kind of data before building",
        "high",
    ),
    Topic(
        "reports",
        "Reports",
        "report*, analytics, chart*, statistic*, export*, csv, excel, metrics, kpi*",
        {"technical": 1, "scalability": 1},
        "Questions over all data slow down those who work with it",
        "Say which figures, from when; compute them apart",
        "low",
    ),
    Topic(
        "languages",
        "Languages of people",
        "multi language, multilingual, i18n, l10n, localis*, localiz*, translat*, currencies, time zone*, timezone*",
        {"technical": 1},
        "It reaches into every text, date and amount",
        "Keep texts out of the code from the start, times in UTC",
        "low",
    ),
    Topic(
        "operation",
        "Operation",
        "deploy*, docker, kubernetes, k8s, terraform, aws, azure, gcp, cloud*, ci/cd, ci cd, infrastructure, "
        "monitoring, "
        "observability, serverless",
        {"integration": 1, "technical": 1},
        "What works on one machine has to work on another, and be seen there",
        "Build and deploy by one command from the first week; logs and health first",
        "low",
    ),
    Topic(
        "microservices",
        "Parts that talk over a network",
        "microservice*, micro service*, service mesh, distributed, saga, cqrs, event sourc*",
        {"technical": 2, "scalability": 1, "integration": 1},
        "Each call between parts can fail by itself",
        "Begin with one deployable part, cut where load or teams ask for it",
        "high",
    ),
)
"""Searched in the requirements, the constraints and the context."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A conclusion from a fact of the repository. ``holds`` takes the Unix time, and returns evidence or ``""``."""

    rule: str
    holds: Callable[[Mapping[str, Any], float], str]
    points: Mapping[Factor, int]
    kind: str
    risk: str
    mitigation: str
    probability: Level = "medium"
    impact: Level = "medium"


def _lines(facts: Mapping[str, Any], least: int) -> str:
    return f"{facts['lines']} lines of code" if facts["lines"] >= least else ""


def _untested(facts: Mapping[str, Any], _: float) -> str:
    return f"{facts['lines']} lines of code, no test" if facts["lines"] and not facts["tests"]["cases"] else ""


def _seldom_tested(facts: Mapping[str, Any], _: float) -> str:
    cases, lines = facts["tests"]["cases"], facts["lines"]
    return f"{cases} tests for {lines} lines" if cases and lines > 5000 and lines > 500 * cases else ""


def _unchecked(facts: Mapping[str, Any], _: float) -> str:
    return "no file of a CI service" if facts["lines"] and not facts["ci"] else ""


def _many_languages(facts: Mapping[str, Any], _: float) -> str:
    found = [f"{one['name']} {one['share']:.0%}" for one in facts["languages"] if one["share"] >= 0.1]
    return ", ".join(found) if len(found) >= 3 else ""


def _unlocked(facts: Mapping[str, Any], _: float) -> str:
    needs = facts["dependencies"]["direct"]
    return f"{needs} dependencies, no lock file" if needs and not facts["lockFiles"] else ""


def _many_needs(facts: Mapping[str, Any], _: float) -> str:
    needs = facts["dependencies"]["direct"]
    return f"{needs} direct dependencies" if needs > 60 else ""


def _secrets(facts: Mapping[str, Any], _: float) -> str:
    return ", ".join(facts["secretFiles"][:5])


def _unlicensed(facts: Mapping[str, Any], _: float) -> str:
    return "no licence file, and no build file names one" if facts["lines"] and not facts["licence"]["name"] else ""


def _one_author(facts: Mapping[str, Any], _: float) -> str:
    git = facts.get("git", {})
    share, commits = git.get("topAuthorShare", 0), git.get("commits", 0)
    return f"{share:.0%} of {commits} commits by one author" if share >= 0.8 and commits >= 20 else ""


def _asleep(facts: Mapping[str, Any], now: float) -> str:
    days = (now - last) / 86400 if (last := facts.get("git", {}).get("lastCommit", 0)) else 0
    return f"the last commit is {days:.0f} days old" if days > 365 else ""


def _hot(facts: Mapping[str, Any], _: float) -> str:
    git = facts.get("git", {})
    hot = [one for one in git.get("churn", ()) if git["churnOf"] >= 20 and one["commits"] >= 0.25 * git["churnOf"]]
    return ", ".join(f"{one['path']}: {one['commits']} of {git['churnOf']} commits" for one in hot[:3])


def _large_files(facts: Mapping[str, Any], _: float) -> str:
    return ", ".join(f"{one['path']}: {one['lines']} lines" for one in facts["largestFiles"][:3])


OBSERVATIONS = (
    Observation(
        "code of 10,000 lines",
        lambda facts, _: _lines(facts, 10_000),
        {"technical": 1},
        "size",
        "Changes have effects that are not visible",
        "Map the parts that are touched before planning them",
    ),
    Observation(
        "code of 100,000 lines",
        lambda facts, _: _lines(facts, 100_000),
        {"technical": 2},
        "size",
        "Nobody knows all of it",
        "Work in one part at a time, with its owners",
        "high",
    ),
    Observation(
        "three languages",
        _many_languages,
        {"integration": 1},
        "skills",
        "Work needs several languages and tool chains",
        "Plan who does which",
        "medium",
        "low",
    ),
    Observation(
        "no tests",
        _untested,
        {"technical": 2},
        "quality",
        "Nothing reports when a change breaks what worked",
        "Tests around what is touched come first",
        "high",
        "high",
    ),
    Observation(
        "few tests",
        _seldom_tested,
        {"technical": 1},
        "quality",
        "Much of the code is not tested",
        "Tests around what is touched come first",
        "medium",
        "medium",
    ),
    Observation(
        "no CI",
        _unchecked,
        {},
        "quality",
        "Checks run only where somebody remembers them",
        "Run the tests on every push",
        "medium",
        "medium",
    ),
    Observation(
        "no lock file",
        _unlocked,
        {"integration": 1},
        "dependencies",
        "Builds of tomorrow use other versions than those of today",
        "Commit a lock file",
        "medium",
        "medium",
    ),
    Observation(
        "60 dependencies",
        _many_needs,
        {"security": 1, "integration": 1},
        "dependencies",
        "Faults of others become one's own",
        "Check them for known faults on every build",
        "medium",
        "medium",
    ),
    Observation(
        "files of secrets",
        _secrets,
        {"security": 2},
        "security",
        "Secrets may lie in the repository",
        "Look whether they are real, replace them, keep them elsewhere",
        "medium",
        "high",
    ),
    Observation(
        "no licence",
        _unlicensed,
        {},
        "legal",
        "Nobody else may use it",
        "Add a licence, or say that it is private",
        "low",
        "low",
    ),
    Observation(
        "one author",
        _one_author,
        {},
        "people",
        "What only one person knows is lost with them",
        "Have a second person review and change it",
        "medium",
        "high",
    ),
    Observation(
        "a year without change",
        _asleep,
        {"technical": 1},
        "age",
        "Tools and dependencies have moved on",
        "Build and test it as it is before changing it",
        "high",
        "medium",
    ),
    Observation(
        "a file changed all the time",
        _hot,
        {},
        "quality",
        "Work in parallel meets in the same files",
        "Divide them first, or do that work one after the other",
        "medium",
        "medium",
    ),
    Observation(
        "large files",
        _large_files,
        {"technical": 1},
        "quality",
        "Large files are hard to change",
        "Divide them where they are touched",
        "medium",
        "low",
    ),
)
"""Checked if there is a repository."""

NAMED = (
    "Python, Django, Flask, FastAPI, JavaScript, TypeScript, Node.js, React, Next.js, Vue, Angular, Svelte, Express, "
    "NestJS, "
    "React Native, Expo, Flutter, Swift, SwiftUI, Kotlin, Java, Spring Boot, Go, Rust, Ruby on Rails, Rails, PHP, "
    "Laravel, "
    "C#, .NET, C++, Elixir, Phoenix, GraphQL, gRPC, PostgreSQL, Postgres, MySQL, SQLite, MongoDB, Redis, "
    "Elasticsearch, Kafka, "
    "RabbitMQ, Docker, Kubernetes, Terraform, AWS, Azure, GCP, Cloudflare, Vercel, Supabase, Firebase, Stripe, Hono, "
    "MakerKit, "
    "Tailwind, Prisma, tRPC, WebSocket, OAuth, Auth0, Keycloak"
)
"""Technologies that are recognized if they are named; none is recommended otherwise."""


def technologies(text: str) -> list[str]:
    """Return the technologies of ``NAMED`` in the text, in the order of the list."""
    found = [name for name in NAMED.split(", ") if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w+#])", text)]
    return [one for one in found if not any(one != other and one in other.split() for other in found)]
