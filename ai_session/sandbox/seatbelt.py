"""The box of a shell on macOS as a Seatbelt profile, for ``sandbox-exec``. No I/O; the last matching rule decides.

There are no namespaces: processes and local services of the same user stay visible, and what outlives the shell must be
found and ended from outside. Protected paths are protected at any depth, whether they exist or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, islice

from agentwire.system.path_patterns import Pattern, parse
from agentwire.system.protected_names import protected
from ai_session.models import SandboxProfile
from ai_session.sandbox.workspace.tree import DECIDING

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/System", "/Library", "/opt/homebrew", "/opt/local", "/private/etc", "/nix/store"),
    *("/private/var/db/timezone", "/private/var/select", "/Applications/Xcode.app"),
)
DEVICES = "^/dev/(tty.*|ptmx|null|zero|random|urandom|dtracehelper|fd/.*)$"
NAMES = ("com.apple.SystemConfiguration.configd", "com.apple.dnssd.service", "com.apple.trustd.agent")
"""The services that programs on a network use to resolve names, find proxies and check certificates."""
PORTION = 25
_SPECIAL = frozenset("\\.[]*^$()+?{}|")


def profile_text(profile: SandboxProfile, *, scratch: Sequence[str] = ()) -> str:
    """Return the rules of ``profile``. Paths must be free of links. ``scratch`` is writable and unprotected.

    The network ``proxy`` is none: without a namespace, any program on the machine could use its listener.
    """
    roots = (profile.workspace, *profile.writable) if profile.workspace else profile.writable
    writes = profile.name == "workspace"
    shown = [f"{profile.home.rstrip('/')}/{name}" for name in profile.home_readable if profile.home]
    written = (*(roots if writes else ()), *scratch)
    rules = [
        "(version 1)",
        "(deny default)",
        '(import "system.sb")',
        "(allow process-exec process-fork sysctl-read pseudo-tty)",
        "(allow process-info* signal (target same-sandbox))",
        "(allow file-read-metadata)",
        '(allow file-read* (literal "/"))',
        f"(allow file-read* file-write* file-ioctl (regex {quote(DEVICES)}))",
        _rule("allow", "file-read*", map(_subpath, (*SYSTEM, *shown, *profile.readable, *roots, *scratch))),
        _rule("allow", "file-write*", map(_subpath, written)),
        *_network(profile, written),
    ]
    if writes:
        for root in roots:
            rules += _protect(root, profile.protected)
    if profile.workspace:
        for pattern in map(parse, profile.masked):
            fits = quote(f"^{_literally(profile.workspace)}/{_expression(pattern)}(/|$)")
            what = "file-read-data file-write*" if writes or not pattern.excepts else "file-read-data"
            rules.append(f"({'allow' if pattern.excepts else 'deny'} {what} (regex {fits}))")
    return "\n".join(filter(None, rules)) + "\n"


def quote(text: str) -> str:
    """Return ``text`` as a string literal of the profile's language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _rule(verdict: str, operations: str, filters: Iterable[str]) -> str:
    """Return a rule, or nothing without a filter: a rule without one would match everything."""
    words = " ".join(filters)
    return f"({verdict} {operations} {words})" if words else ""


def _subpath(path: str) -> str:
    return f"(subpath {quote(path)})"


def _network(profile: SandboxProfile, written: Sequence[str]) -> list[str]:
    if profile.network == "host":
        names = " ".join(f"(global-name {quote(name)})" for name in NAMES)
        return ["(allow network* system-socket)", f"(allow mach-lookup {names})"]
    sockets = _rule("allow", "network-bind network-inbound network-outbound", map(_subpath, written))
    return ["(deny network*)", sockets]


def _protect(root: str, own: Sequence[str]) -> list[str]:
    top = f"^{_literally(root)}/"
    git = f"{top}(.*/)?{_any_case('.git')}"
    deciding = "|".join(map(_any_case, DECIDING))
    rules: list[str] = []
    for excepts, lines in groupby(protected(own).all, lambda pattern: pattern.excepts):
        # In portions, because the length of an expression is limited.
        while portion := list(islice(lines, PORTION)):
            fits = quote(f"{top}({'|'.join(map(_expression, portion))})(/|$)")
            rules.append(f"({'allow' if excepts else 'deny'} file-write* (regex {fits}))")
    return [
        *rules,
        # After a person's exceptions, which must not allow these.
        f"(deny file-write* (regex {quote(f'{git}/({deciding})(/|$)')}))",
        # It may be created but not moved away; as a file, it points to another repository.
        f"(deny file-write-unlink file-write-data (regex {quote(f'{git}$')}))",
    ]


def _expression(pattern: Pattern) -> str:
    """Return the pattern as an extended regular expression of paths below the workspace."""
    *outer, last = pattern.names
    return "".join("(.*/)?" if name == "**" else f"{_glob(name)}/" for name in outer) + (
        ".*" if last == "**" else _glob(last)
    )


def _literally(text: str) -> str:
    """Return an extended regular expression that matches only ``text``."""
    return "".join(f"\\{character}" if character in _SPECIAL else character for character in text)


def _any_case(text: str) -> str:
    """Return ``_literally`` in any case: on a Mac's file system those are the same name."""
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else _literally(c) for c in text)


def _glob(name: str) -> str:
    wild = {"*": "[^/]*", "?": "[^/]"}
    words = re.findall(r"\[[^\]]+\]|\\.|.", name, re.DOTALL)
    return "".join(_set(word) if len(word) > 2 else wild.get(word) or _any_case(word[-1]) for word in words)


def _set(word: str) -> str:
    inner = word[1:-1]
    inner = f"^{inner[1:]}" if inner[0] in "!^" else inner
    return f"[{inner}{inner.upper().removeprefix('^')}]"
