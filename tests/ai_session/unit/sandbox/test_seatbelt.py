"""Seatbelt profiles, read by a small reader of their language and judged as macOS would: the last rule decides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwire.system.protected_names import PROTECTED
from ai_session.models import SandboxProfile
from ai_session.sandbox.seatbelt import profile_text, quote

ODD = (
    *("/Users/me/work", "/Users/me/a b (c)", '/Users/me/say "hi"', "/Users/me/back\\slash", "/Users/me/back\\"),
    *("/Users/me/') (allow default) ('", '/Users/me/") (allow default) ("', "/Users/me/[x]*?+{2}|^$.", "/Users/ü/日本"),
)
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).map(lambda t: f"/w/{t}")


@lru_cache(maxsize=4)
def read(text: str) -> list[Any]:
    """Nested lists of words; strings are tuples of one. Raises IndexError, ValueError for what does not close."""
    tokens = re.compile(r'\s*(?:(\()|(\))|"((?:[^"\\]|\\.)*)"|([^\s()"]+))', re.DOTALL)
    stack: list[list[Any]] = [[]]
    text, position = text.strip(), 0
    while position < len(text):
        token = tokens.match(text, position)
        if token is None:
            raise ValueError(text[position:])
        position = token.end()
        if token[1]:
            stack.append([])
        elif token[2]:
            inner = stack.pop()
            stack[-1].append(inner)
        elif token[4]:
            stack[-1].append(token[4])
        else:
            stack[-1].append((re.sub(r"\\(.)", r"\1", token[3], flags=re.DOTALL),))
    (rules,) = stack
    return rules


def fits(filters: list[Any], path: str) -> bool:
    return not filters or any(fits_one(kind, value, path) for kind, (value,) in filters)


def fits_one(kind: str, value: str, path: str) -> bool:
    if kind == "regex":
        return re.search(value, path, re.DOTALL) is not None
    return path == value or (kind == "subpath" and path.startswith(value.rstrip("/") + "/"))


def operations(rule: list[Any]) -> Iterator[str]:
    return (word for word in rule[1:] if isinstance(word, str))


def allowed(text: str, operation: str, path: str) -> bool:
    verdict = "deny"
    for rule in read(text):
        if rule[0] not in ("allow", "deny"):
            continue
        named = any(
            word == operation
            or operation.startswith(word.rstrip("*") + "-")
            or (word.endswith("*") and operation.startswith(word[:-1]))
            for word in operations(rule)
        )
        filters = [word for word in rule[1:] if isinstance(word, list)]
        if named and not any(kind[0] in ("target", "global-name") for kind in filters) and fits(filters, path):
            verdict = rule[0]
    return verdict == "allow"


@pytest.mark.parametrize("workspace", ODD)
def test_where_a_box_reads_and_writes(workspace: str) -> None:
    profile = SandboxProfile(
        "workspace", workspace, "/Users/me", home_readable=(".gitconfig",), masked=(".env", "!/docs/.env", "/*.pem")
    )
    text = profile_text(profile, scratch=("/private/box",))
    for path in (f"{workspace}/file", f"{workspace}/.git/index", f"{workspace}/deep/.git", "/private/box/.git/config"):
        assert allowed(text, "file-read-data", path), path
        assert allowed(text, "file-write-create", path), path
    for name in (
        ".git/config",
        "deep/er/.git/hooks/pre-commit",
        ".git/commondir",
        ".claude/settings.json",
        ".mcp.json",
        "packages/web/.vscode/tasks.json",
        "packages/web/.NPMRC",
        "a/b/.cargo/config.toml",
        "a/mise.local.toml",
        "a/x.code-workspace",
    ):
        assert allowed(text, "file-read-data", f"{workspace}/{name}"), name
        assert not allowed(text, "file-write-create", f"{workspace}/{name}"), name
        assert not allowed(text, "file-write-unlink", f"{workspace}/{name}"), name
    assert not allowed(text, "file-write-unlink", f"{workspace}/.git")
    assert not allowed(text, "file-write-data", f"{workspace}/module/.git")
    assert allowed(text, "file-write-data", f"{workspace}/.gitignore")
    for name in (".env", "server.pem", ".ENV", "deep/er/.env"):
        assert not allowed(text, "file-read-data", f"{workspace}/{name}"), name
    for name in ("docs/.env", "deep/server.pem"):
        assert allowed(text, "file-read-data", f"{workspace}/{name}"), name
        assert allowed(text, "file-write-data", f"{workspace}/{name}"), name
    for path in ("/Users/me/.ssh/id", f"{workspace}2/file", "/etc2", "/private/tmp/x"):
        assert not allowed(text, "file-read-data", path), path
        assert not allowed(text, "file-write-data", path), path
    assert allowed(text, "file-read-data", "/Users/me/.gitconfig")
    assert not allowed(text, "file-write-data", "/Users/me/.gitconfig")
    assert allowed(text, "file-read-data", "/usr/bin/env")
    assert not allowed(text, "file-write-data", "/usr/bin/env")


def test_a_box_that_only_reads() -> None:
    text = profile_text(SandboxProfile("read-only", "/w", writable=("/v",), masked=(".env",)), scratch=("/s",))
    for path in ("/w/file", "/v/file"):
        assert allowed(text, "file-read-data", path)
        assert not allowed(text, "file-write-data", path)
    assert allowed(text, "file-write-data", "/s/file")
    assert not allowed(text, "file-read-data", "/w/.env")


def test_what_a_person_protects_and_excepts() -> None:
    own = ("CLAUDE.md", "!a/.npmrc", "!**/config", "[xy]*.md")
    text = profile_text(SandboxProfile("workspace", "/w", protected=own))
    for path in ("/w/CLAUDE.md", "/w/a/claude.md", "/w/b/.npmrc", "/w/Xz.md", "/w/.git/config", "/w/a/.git/config"):
        assert not allowed(text, "file-write-data", path), path
    for path in ("/w/a/.npmrc", "/w/zx.md"):
        assert allowed(text, "file-write-data", path), path


@given(st.sampled_from([line for line in PROTECTED if "*" not in line.removeprefix("**/")]))
def test_every_line_of_the_table_holds_at_any_depth(line: str) -> None:
    text = profile_text(SandboxProfile("workspace", "/w"))
    name = line.removeprefix("**/")
    for path in (f"/w/{name}", f"/w/a/b/{name.upper()}", f"/w/a/{name}/x"):
        assert not allowed(text, "file-write-create", path), path
    assert allowed(text, "file-write-create", f"/w/a/{name}2")


@pytest.mark.parametrize("network", ["off", "proxy"])
def test_no_network_but_sockets_in_its_own_files(network: Any) -> None:
    text = profile_text(SandboxProfile("workspace", "/w", network=network))
    assert allowed(text, "network-outbound", "/w/socket")
    assert not allowed(text, "network-outbound", "/var/run/mDNSResponder")
    assert not allowed(text, "network-bind", "*:80")


def test_the_hosts_network() -> None:
    assert allowed(profile_text(SandboxProfile("workspace", "/w", network="host")), "network-outbound", "1.1.1.1:53")


def test_a_profile_that_names_nothing_allows_nothing() -> None:
    text = profile_text(SandboxProfile("workspace"))
    assert not allowed(text, "file-write-data", "/anything")
    assert not allowed(text, "file-read-data", "/anything")


PLAIN = read(profile_text(SandboxProfile("workspace", "/w/plain", readable=("/w/other",), masked=(".env",))))


@given(PATHS, PATHS)
def test_a_path_is_that_path_and_no_rule_of_its_own(path: str, other: str) -> None:
    assert read(quote(path)) == [(path,)]
    odd = read(profile_text(SandboxProfile("workspace", path, readable=(other,), masked=(".env",))))
    assert shape(odd) == shape(PLAIN)
    text = profile_text(SandboxProfile("workspace", path))
    assert allowed(text, "file-write-data", f"{path}/file")
    assert not allowed(text, "file-write-data", f"{path}/.git/config")


def shape(rules: Any) -> Any:
    """Without what strings say."""
    return [shape(rule) for rule in rules] if isinstance(rules, list) else "" if isinstance(rules, tuple) else rules
