"""Finds the files in a person's work tree from which programs outside an agent's box take commands.

They are those with a protected name, those that links in the home directory make the person's settings, and those that
git runs or reads as configuration. A symbolic link gives its target a second name, so links count in the state the work
leaves them in, and a changed link counts wherever a relevant file is behind it. Names are compared as the least strict
file system compares them. Methods block.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentwire.system.path_patterns import Patterns, fold_path
from agentwire.system.protected_names import OF_A_HOME
from ccswarm.clones.checkout import Change
from ccswarm.clones.git import Git, PrivateRepository, Repository
from ccswarm.errors import Conflict

LINK = "120000"
MOST_LINKS_FOLLOWED = 40
"""The limit for one path, as in the kernel."""
MOST_STEPS = 10_000
MOST_SECOND_NAMES = 50_000
MOST_LINKS_IN_A_NAME = 8

PROGRAMS = re.compile(
    r"""core\.(?:fsmonitor|pager|editor|sshcommand|askpass|gitproxy|alternaterefscommand)
    |credential\.(?:.*\.)?helper
    |diff\.external|diff\..*\.(?:command|textconv)|merge\..*\.driver
    |filter\..*\.(?:clean|smudge|process)|lfs\.extension\..*\.(?:clean|smudge)|lfs\.customtransfer\..*\.(?:path|args)
    |(?:difftool|mergetool|guitool|browser|man)\..*\.(?:cmd|path)|(?:web|help|instaweb)\.browser|instaweb\.httpd
    |gpg\.(?:.*\.)?program|gpg\.ssh\.defaultkeycommand
    |pager\..*|sequence\.editor|interactive\.difffilter
    |sendemail\.(?:.*\.)?(?:\w*cmd|smtpserver)|imap\.tunnel
    |trailer\..*\.(?:command|cmd)|tar\..*\.command|hook\..*\.command
    |remote\..*\.(?:uploadpack|receivepack|vcs)|uploadpack\.packobjectshook|gc\.recentobjectshook
    |submodule\..*\.update|svn\.authors-?prog""",
    re.VERBOSE | re.DOTALL,
)
"""git's settings whose value it runs, as a program or as a shell command."""
FILES = re.compile(r"include\.path|includeif\..*\.path|core\.attributesfile", re.DOTALL)
DIRECTORIES = re.compile(r"core\.hookspath|init\.templatedir|gitflow\.path\.hooks")
RUNS_ANOTHER = re.compile(
    r"(?:^|\s)(?:!|-c\b|-x|-O|--exec|--extcmd|--open-files-in-pager|--(?:upload|receive)-pack|--\w+-filter"
    r"|run\b|foreach\b)"
)
"""The parts of an alias that start more than git's own commands."""
HOOKS = frozenset(
    (
        *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit"),
        *("prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push"),
        *("pre-receive", "update", "proc-receive", "post-receive", "post-update", "reference-transaction"),
        *("push-to-checkout", "pre-auto-gc", "post-rewrite", "sendemail-validate", "fsmonitor-watchman"),
        *("post-index-change", "p4-changelist", "p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit"),
    )
)
"""The names that count as hooks at the top of the work tree. In other directories of hooks every name counts."""
BETWEEN_WORDS = re.compile(r"[\s'\"=;&|()<>`{}]+")
ENTERED = re.compile(r"(?:\b(?:cd|pushd)\s+(?:--\s+)?|\s-C[\s=]*|--directory[\s=]+|--prefix[\s=]+)([^\s;&|()<>]+)")
VARIABLE = re.compile(r"\$\w*/")


@dataclass(frozen=True, slots=True)
class NamedPaths:
    """The paths that a person's git configuration names, absolute and as written."""

    files: frozenset[str]
    directories: frozenset[str]


class Names:
    """A reader of the names in one repository's git configuration. It runs nothing."""

    def __init__(self, git: Git, repository: Repository) -> None:
        self._repository = repository
        self._top = str(repository.top)
        self._home = git.home
        self._files: set[str] = set()
        self._directories: set[str] = set()

    def all(self) -> NamedPaths:
        """Return the paths of hooks, further configuration and programs."""
        common = str(self._repository.common)
        self._add_directory(f"{common}/hooks")
        self._files |= {f"{common}/{name}" for name in ("config", "info/attributes")}
        self._files |= {f"{self._repository.git_dir}/{name}" for name in ("config.worktree", "info/attributes")}
        for name in OF_A_HOME:
            path = os.path.join(self._home, name)
            if os.path.isdir(path):
                self._add_directory(path)
            else:
                self._files.add(path)
        for setting in self._repository.configuration:
            if setting.file:
                self._files.add(file := os.path.join(self._top, setting.file))
                self._add(setting.name.casefold(), setting.value, os.path.dirname(file))
        return NamedPaths(frozenset(self._files), frozenset(self._directories))

    def _add(self, key: str, value: str, directory: str) -> None:
        value = value.removeprefix(":(optional)")
        if key.startswith(("include.", "includeif.")) and FILES.fullmatch(key):
            self._files.add(os.path.join(directory, self._expanded(value)))
        elif FILES.fullmatch(key):
            self._files |= set(self._possible_paths(value))
        elif DIRECTORIES.fullmatch(key):
            for path in self._possible_paths(value):
                self._add_directory(path)
        elif PROGRAMS.fullmatch(key) or "ext::" in f"{key} {value}":
            self._add_program(f"{key} {value}" if "ext::" in key else value)
        elif key.startswith("alias.") and RUNS_ANOTHER.search(value):
            self._add_program(value)

    def _add_directory(self, path: str) -> None:
        self._directories.add(path)
        for inner in (path, f"{path}/hooks"):
            with suppress(OSError), os.scandir(inner) as entries:
                self._files |= {entry.path for entry in entries if entry.is_symlink()}

    def _add_program(self, value: str) -> None:
        words = {*BETWEEN_WORDS.split(value), value}
        with suppress(ValueError):
            words |= set(shlex.split(value))
        entered = [""]
        for found in ENTERED.finditer(value):
            inner = _without_variable(found[1].strip("'\""))
            entered += [os.path.join(outer, inner) for outer in entered[:MOST_LINKS_FOLLOWED]]
        for word in words:
            for one in (word, word[2:] if word.startswith("-") else ""):
                for path in self._possible_paths(one.lstrip("!")):
                    self._files.add(path)
                for outer in entered[1:]:
                    if _without_variable(one):
                        self._files.add(os.path.join(self._top, outer, _without_variable(one)))

    def _possible_paths(self, word: str) -> Iterator[str]:
        """Yield the path relative to each directory in which git may start a program."""
        expanded = self._expanded(word)
        if expanded.startswith("/"):
            yield expanded
        if bare := _without_variable(expanded):
            for outer in (self._top, f"{self._top}/{self._repository.prefix}", str(self._repository.git_dir)):
                yield os.path.join(outer, bare)

    def _expanded(self, word: str) -> str:
        for home in ("~/", "$HOME/", "${HOME}/"):
            if word.startswith(home):
                return os.path.join(self._home, word[len(home) :])
        return os.path.expanduser(word) if word.startswith("~") else word


def _without_variable(word: str) -> str:
    """Remove the variable or command substitution that a path begins with."""
    return VARIABLE.sub("", word, count=1).lstrip("/") if word.startswith("$") else word.lstrip("/")


class Links:
    """The symbolic links below ``top``: their targets by path, which is relative as git writes it."""

    def __init__(self, top: str, links: Iterable[tuple[str, str]]) -> None:
        self._tops = tuple(dict.fromkeys((top, os.path.realpath(top))))
        self.paths: dict[str, None] = {}
        self._texts: dict[str, dict[tuple[str, str], None]] = {}
        for path, text in links:
            self.paths[path] = None
            self._texts.setdefault(fold_path(path), {})[path, text] = None

    def relative_names(self, path: str) -> set[str]:
        """Return the absolute path relative to the top, as written and as the file system resolves it."""
        found: set[str] = set()
        for one in (path, os.path.normpath(path), os.path.realpath(path)):
            found |= {one[len(top) + 1 :] for top in self._tops if one == top or one.startswith(f"{top}/")}
        return found

    def follow(self, path: str) -> tuple[set[str], set[str]]:
        """Return every name that the resolution of ``path`` passes, and the names where it ends, all folded."""
        over: set[str] = set()
        ends: set[str] = set()
        seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
        ahead: list[tuple[tuple[str, ...], tuple[str, ...], int]] = [((), tuple(path.split("/")), 0)]
        while ahead:
            behind, rest, followed = ahead.pop()
            if (behind, rest) in seen or followed > MOST_LINKS_FOLLOWED:
                continue
            seen.add((behind, rest))
            _check_limit(len(seen), MOST_STEPS)
            if not rest:
                ends.add(fold_path("/".join(behind)))
                continue
            name, *left = rest
            if name in ("", "."):
                ahead.append((behind, tuple(left), followed))
            elif name == "..":
                if behind:
                    ahead.append((behind[:-1], tuple(left), followed))
                else:
                    ahead += self._outside(os.path.join(self._tops[-1], *rest), followed)
            else:
                here = "/".join((*behind, name))
                over.add(fold_path(here))
                links = self._texts.get(fold_path(here), {})
                if all(link != here for link, _ in links):
                    ahead.append(((*behind, name), tuple(left), followed))
                for _, text in links:
                    if text.startswith("/"):
                        ahead += self._outside("/".join((text, *left)), followed + 1)
                    else:
                        ahead.append((behind, (*text.split("/"), *left), followed + 1))
        return over, ends

    def _outside(self, path: str, followed: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], int]]:
        for one in self.relative_names(path):
            yield (), tuple(one.split("/")), followed + 1


class Commands:
    """The decision which changed files programs take commands from. ``named`` are the paths that the person's git
    names, ``names`` are protected. The constructor raises Conflict if there are too many links to follow."""

    def __init__(self, named: NamedPaths, names: Patterns, links: Links) -> None:
        self._names = names
        self._over: set[str] = set()
        self._files: set[str] = set()
        self._directories: set[str] = set()
        for given, found in ((named.files, self._files), (named.directories, self._directories)):
            for path in given:
                for inner in links.relative_names(path):
                    found |= self._followed(links, inner)
        if "" in self._directories:
            self._directories.discard("")
            self._files |= HOOKS
        self._second: dict[str, dict[str, frozenset[str]]] = {}
        """For each end of links: its names through links, each with the links that it passes."""
        self._known: set[str] = set()
        self._find_second_names(links)

    def controls_programs(self, change: Change) -> bool:
        """Report whether git, a shell, an editor, another agent or a package manager acts on the file's content."""
        link = change.mode == LINK
        if self._is_protected(change.path, link=link):
            return True
        names = change.path.split("/")
        outers = ["/".join(names[:count]) for count in range(len(names) + 1)]
        folded = [fold_path(outer) for outer in outers]
        if folded[-1] in self._files or not self._directories.isdisjoint(folded):
            return True
        if link and folded[-1] in self._over:
            return True
        return any(
            self._is_protected("/".join((second, *names[count:])), link=link)
            for count, outer in enumerate(folded)
            for second in self._second.get(outer, ())
        )

    def _is_protected(self, path: str, *, link: bool) -> bool:
        names = path.split("/")
        if any(map(self._names.may_fit, names)) and self._names.around(path):
            return True
        return link and self._names.may_lead(names[-1]) and self._names.leads_to(path)

    def _followed(self, links: Links, path: str) -> set[str]:
        over, ends = links.follow(path)
        self._over |= over
        return ends

    def _find_second_names(self, links: Links) -> None:
        """Find the names that files have through links with a protected name, or on the way to one."""
        new = {(path, path): frozenset((path,)) for path in links.paths if self._is_protected(path, link=True)}
        count = 0
        for _ in range(MOST_LINKS_IN_A_NAME):
            for (path, name), chain in new.items():
                self._known.add(name)
                for end in self._followed(links, path):
                    self._second.setdefault(end, {})[name] = chain
                    _check_limit(count := count + 1, MOST_SECOND_NAMES)
            if not (new := self._links_behind(links)):
                return
        raise _too_many_links()

    def _links_behind(self, links: Links) -> dict[tuple[str, str], frozenset[str]]:
        """Return the links behind other links, with the names they have there that are not known yet."""
        found: dict[tuple[str, str], frozenset[str]] = {}
        for path in links.paths if self._second else ():
            names = path.split("/")
            for count in range(len(names) + 1):
                for second, chain in self._second.get(fold_path("/".join(names[:count])), {}).items():
                    name = "/".join((second, *names[count:]))
                    # A name that passes the same link again adds nothing.
                    if path not in chain and self._is_protected(name, link=True):
                        found[path, name] = chain | {path}
                        _check_limit(len(found), MOST_SECOND_NAMES)
        return {(path, name): chain for (path, name), chain in found.items() if name not in self._known}


def _check_limit(count: int, most: int) -> None:
    if count > most:
        raise _too_many_links()


def _too_many_links() -> Conflict:
    return Conflict(
        "symbolic links lead to each other in more ways than can be followed",
        suggestion="remove those that lead to the directory they are in, or merge by hand",
    )


def links_of(git: Git, ours: PrivateRepository, tree: str, top: Path) -> Links:
    """Return the links of a git tree, and other links in its directories in the person's work tree."""
    output = git.private(ours, "ls-tree", "-r", "-z", "--full-tree", tree).decode(errors="surrogateescape")
    found: list[tuple[str, str]] = []
    links: dict[str, str] = {}
    directories = {""}
    for line in output.split("\0")[:-1]:
        facts, _, path = line.partition("\t")
        mode, _, oid = facts.split(" ")
        if mode == LINK:
            links[path] = oid
        while (path := path.rpartition("/")[0]) and path not in directories:
            directories.add(path)
    texts = _blobs(git, ours, links.values())
    found += [(path, texts[oid]) for path, oid in links.items()]
    for directory in directories:
        with suppress(OSError), os.scandir(top / directory) as entries:
            for entry in entries:
                if entry.is_symlink():
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    found.append((path, os.readlink(entry.path)))
    return Links(str(top), found)


def _blobs(git: Git, ours: PrivateRepository, oids: Collection[str]) -> Mapping[str, str]:
    unique = list(dict.fromkeys(oids))
    if not unique:
        return {}
    output = git.private(ours, "cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in unique).encode())
    found: dict[str, str] = {}
    at = 0
    for oid in unique:
        end = output.index(b"\n", at)
        size = int(output[at:end].split()[2])
        found[oid] = os.fsdecode(output[end + 1 : end + 1 + size])
        at = end + size + 2
    return found
