"""Work of agents that changes files from which programs outside of a box take commands, and harmless similar work."""

from __future__ import annotations

import shutil
from pathlib import Path

Tree = dict[str, str]
"""Files by path; a text that begins with ``->`` is the target of a symbolic link."""


def lay(top: Path, tree: Tree) -> None:
    for name, text in tree.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if text.startswith("->"):
            path.symlink_to(text.removeprefix("->"))
        else:
            path.write_text(text)
            path.chmod(0o755)


BY_LINKS: dict[str, tuple[Tree, Tree, list[str]]] = {
    "a directory that is a link": ({}, {".cargo": "->x", "x/config.toml": ""}, [".cargo", "x/config.toml"]),
    "the link alone": ({}, {"sub/.github": "->gh"}, ["sub/.github"]),
    "the link alone, in other case": ({}, {".Cargo": "->x"}, [".Cargo"]),
    "what a link of the person leads to": ({".cargo": "->c", "c/a": ""}, {"c/config.toml": ""}, ["c/config.toml"]),
    "below it": ({"sub/.claude": "->ai", "sub/ai/a": ""}, {"sub/ai/b/c": ""}, ["sub/ai/b/c"]),
    "a file": ({"sub/.envrc": "->env.dev", "sub/env.dev": "1"}, {"sub/env.dev": "2"}, ["sub/env.dev"]),
    "over two links": ({".envrc": "->a/e", "a": "->b", "b/e": "1"}, {"b/e": "2"}, ["b/e"]),
    "up from behind a link": (
        {".cargo": "->a/../c", "a": "->b/d", "b/d/x": "", "b/c/y": ""},
        {"b/c/config": ""},
        ["b/c/config"],
    ),
    "a link behind a link": ({".jj": "->j", "j/repo": "->../r", "r/x": ""}, {"r/config.toml": ""}, ["r/config.toml"]),
    "a new link behind a link": ({".jj": "->j", "j/x": ""}, {"j/repo": "->../r"}, ["j/repo"]),
    "a link on the way that is exchanged": (
        {".cargo": "->a/c", "a/c/x": ""},
        {"a": "->e", "e/c/config": ""},
        ["a", "e/c/config"],
    ),
    "a link to itself": ({".config": "->.", "x": ""}, {"fish/config.fish": ""}, ["fish/config.fish"]),
    "the same over and over": (
        {"sub/.config": "->../sub", "sub/x": ""},
        {"sub/nvim/init.lua": ""},
        ["sub/nvim/init.lua"],
    ),
    "names that recur": (
        {"a/b/a/.jj": "->../j", "a/b/j/repo": "->../r", "a/b/r/x": ""},
        {"a/b/r/config.toml": ""},
        ["a/b/r/config.toml"],
    ),
    "a link without end": ({"a": "->a/a", ".cargo": "->a"}, {"b": ""}, []),
    "links that lead to nothing protected": (
        {"l": "->d", "d/x": "", ".cargo": "->c"},
        {"d/x": "2", "m": "->d", "c/other": ""},
        [],
    ),
}
"""Cases by name: the person's files, those of the work, and the files that only a person may merge."""

X: Tree = {"tools/x": "1"}
EVIL: Tree = {"tools/x": "2"}
BY_GIT: dict[str, tuple[str, Tree, Tree, list[str]]] = {
    "a name without a slash": ("filter.x.clean=sh clean.sh", {}, {"clean.sh": ""}, ["clean.sh"]),
    "textconv": ("diff.x.textconv=sh clean.sh", {}, {"clean.sh": ""}, ["clean.sh"]),
    "fsmonitor": ("core.fsmonitor=sh clean.sh", {}, {"clean.sh": ""}, ["clean.sh"]),
    "merge driver": ("merge.x.driver=sh m.sh %O %A %B", {}, {"m.sh": ""}, ["m.sh"]),
    "an option's file": ("core.sshCommand=ssh -Fssh.cfg", {}, {"ssh.cfg": ""}, ["ssh.cfg"]),
    "an editor's settings": ("core.editor=vim -u vimrc", {}, {"vimrc": ""}, ["vimrc"]),
    "signing": ("gpg.x509.program=tools/x", X, EVIL, ["tools/x"]),
    "difftool": ("difftool.x.cmd=python3 dt.py $LOCAL", {}, {"dt.py": ""}, ["dt.py"]),
    "credentials": ("credential.https://a/b.helper=!./c", {}, {"c": ""}, ["c"]),
    "archives": ("tar.x.command=tools/x", X, EVIL, ["tools/x"]),
    "a remote that is a program": ("remote.o.url=ext::sh tools/x", X, EVIL, ["tools/x"]),
    "the top by git's answer": ("alias.s=!$(git rev-parse --show-toplevel)/tools/x", X, EVIL, ["tools/x"]),
    "the same in quotes": ('filter.n.clean="$(git rev-parse --show-toplevel)"/tools/x', X, EVIL, ["tools/x"]),
    "after cd": ("alias.s=!cd tools && ./x", X, EVIL, ["tools/x"]),
    "after cd and cd": ("alias.s=!cd a; cd 'b' && sh x", {}, {"a/b/x": ""}, ["a/b/x"]),
    "after a semicolon": ("alias.s=!true;./tools/x", X, EVIL, ["tools/x"]),
    "in a function": ("alias.s=!f() { tools/x; }; f", X, EVIL, ["tools/x"]),
    "a variable": ("core.fsmonitor=$PWD/tools/x", X, EVIL, ["tools/x"]),
    "a variable in braces": ('core.fsmonitor="${PWD}"/tools/x', X, EVIL, ["tools/x"]),
    "a name with a blank": ("core.fsmonitor='my tools/x'", {}, {"my tools/x": ""}, ["my tools/x"]),
    "a name with a blank in an alias": ('alias.s=!"./my tools/x"', {}, {"my tools/x": ""}, ["my tools/x"]),
    "an escaped blank": ("core.pager=my\\ tools/x", {}, {"my tools/x": ""}, ["my tools/x"]),
    "an alias that rebases": ("alias.r=rebase --exec ./tools/x", X, EVIL, ["tools/x"]),
    "an alias with a setting": ("alias.r=-c core.pager=./tools/x log", X, EVIL, ["tools/x"]),
    "another case": ("core.hooksPath=Hooks", {}, {"hooks/pre-commit": ""}, ["hooks/pre-commit"]),
    "dots": ("core.hooksPath=./x/../hk/", {"x/y": ""}, {"hk/pre-commit": ""}, ["hk/pre-commit"]),
    "hooks at the top": ("core.hooksPath=.", {}, {"pre-commit": "", "b": ""}, ["pre-commit"]),
    "a directory of hooks made a link": (
        "core.hooksPath=tools/hk",
        {},
        {"tools": "->e", "e/hk/pre-commit": ""},
        ["e/hk/pre-commit", "tools"],
    ),
    "hooks in a link": (
        "core.hooksPath=hk",
        {"hk": "->real", "real/x": ""},
        {"real/pre-commit": ""},
        ["real/pre-commit"],
    ),
    "hooks behind a link": (
        "core.hooksPath=l/hk",
        {"l": "->r", "r/hk/x": ""},
        {"r/hk/pre-commit": ""},
        ["r/hk/pre-commit"],
    ),
    "a link on the way behind a link": (
        "core.hooksPath=l/hk/h",
        {"l": "->r", "r/hk/h/x": ""},
        {"r/hk": "->../e"},
        ["r/hk"],
    ),
    "a hook that is a link": ("core.hooksPath=hk", {"hk/pre-commit": "->../tools/x", **X}, EVIL, ["tools/x"]),
    "hooks that are not there yet": (
        "core.hooksPath=a1/b1",
        {},
        {"a1": "->zz", "zz/b1/pre-commit": ""},
        ["a1", "zz/b1/pre-commit"],
    ),
    "a program that is a link": ("core.fsmonitor=tools/y", {"tools/y": "->x", **X}, EVIL, ["tools/x"]),
    "templates": ("init.templateDir=tpl", {}, {"tpl/hooks/post-checkout": ""}, ["tpl/hooks/post-checkout"]),
    "attributes": ("core.attributesFile=attrs", {}, {"attrs": "* filter=x"}, ["attrs"]),
    "an include of an include": (
        "include.path=../conf/base",
        {"conf/base": "[include]\n\tpath = more\n"},
        {"conf/more": ""},
        ["conf/more"],
    ),
    "an include that is not in force": ("includeIf.onbranch:other.path=../inc", {}, {"inc": ""}, ["inc"]),
    "a home": ("core.pager=~/project/tools/x", X, EVIL, ["tools/x"]),
    # What git neither runs nor reads as configuration is merged.
    "no program: log": ("alias.l=log --oneline -- src/", {"src/a": "1"}, {"src/a": "2", "src/b": ""}, []),
    "no program: a file in a log": ("alias.l=log -- src/a", {"src/a": "1"}, {"src/a": "2"}, []),
    "a directory that a program reads": (
        "alias.lint=!ruff check src/ tests",
        {"src/a": "1"},
        {"src/a": "2", "tests/b": ""},
        [],
    ),
    "a description": ("branch.main.description=src/a", {}, {"src/a": ""}, []),
    "a name of a person": ("user.name=QA/tools", {}, {"QA/tools": ""}, []),
    "a remote": ("remote.origin.url=./vendor", {}, {"vendor/x": ""}, []),
    "what LFS leaves out": ("lfs.fetchexclude=assets/x", {}, {"assets/x": ""}, []),
    "an address": ("url.https://x/.insteadOf=lib/", {}, {"lib/x": ""}, []),
    "a message": ("commit.template=.gitmessage", {}, {".gitmessage": ""}, []),
    "what is ignored": ("core.excludesFile=conf/ignored", {}, {"conf/ignored": ""}, []),
    "other files of that name": ("core.fsmonitor=sh clean.sh", {}, {"sub/clean.sh": "", "clean.sh.txt": ""}, []),
    "what lies near": ("core.hooksPath=tools/hk", {}, {"tools/other": "", "tools/hk2/x": ""}, []),
}
"""Cases with a setting of the person's git in addition."""
