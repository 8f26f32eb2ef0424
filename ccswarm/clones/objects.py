"""Imports commits from a repository that an agent may write, without running git in that repository.

Only loose objects and packs are copied to a private repository, because git verifies them on arrival. Nothing that
points elsewhere or names programs is read: configuration, alternates, pack indexes, graphs, replaced objects. Methods
block.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from ccswarm.clones.git import Git, PrivateRepository, Repository
from ccswarm.errors import WorkRefused
from ccswarm.system.untrusted_tree import MOST_COPIED_BYTES, UntrustedTree

OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
FOLDER = re.compile(r"[0-9a-f]{2}")
REST = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
PACK = re.compile(r"[\w-]+\.pack")
MOST_REFS_BYTES = 64 << 20
FEW = 100
"""Fewer objects than this are unpacked; more stay in a pack."""


def packs_of(tree: UntrustedTree) -> list[str]:
    """Return the names of a clone's packs."""
    names = (entry.path.rpartition("/")[2] for entry in tree.list(".git/objects/pack").entries)
    return [name for name in names if PACK.fullmatch(name)]


def tip(tree: UntrustedTree, branch: str) -> str:
    """Return the commit of a branch in the clone. Raises WorkRefused."""
    loose = tree.read(f".git/refs/heads/{branch}", 200)
    if loose is not None:
        found = loose.decode(errors="replace").strip()
    else:
        wanted = f" refs/heads/{branch}"
        packed = (tree.read(".git/packed-refs", MOST_REFS_BYTES) or b"").decode(errors="replace")
        found = next((line.removesuffix(wanted) for line in packed.splitlines() if line.endswith(wanted)), "")
    if not OBJECT.fullmatch(found):
        raise WorkRefused(
            f"the clone no longer has branch {branch}",
            suggestion=f"git checkout -B {branch}",
        )
    return found


def import_commit(
    tree: UntrustedTree,
    git: Git,
    repository: Repository,
    into: PrivateRepository,
    commit: str,
    *,
    packs: Collection[str],
    base: str,
) -> None:
    """Copy ``commit`` and all its objects to the private repository ``into``, which is layered over the person's. The
    clone was made from ``base`` with ``packs``, which are not read again. Raises WorkRefused if the commit is
    incomplete."""
    left = MOST_COPIED_BYTES
    for folder in tree.list(".git/objects").directories:
        name = folder.rpartition("/")[2]
        if not FOLDER.fullmatch(name):
            continue
        for entry in tree.list(folder).entries:
            rest = entry.path.rpartition("/")[2]
            if entry.link is None and REST.fullmatch(rest) and not (repository.objects / name / rest).exists():
                (into.objects / name).mkdir(exist_ok=True)
                left -= max(0, tree.copy(entry.path, into.objects / name / rest, left))
    for name in packs_of(tree):
        copied = into.path / name
        if name in packs or (size := tree.copy(f".git/objects/pack/{name}", copied, left)) < 0:
            continue
        left -= size
        with open(copied, "rb") as pack:
            code, _, errors = git.outcome(into, "index-pack", "--stdin", "--fix-thin", stdin=pack)
        copied.unlink()
        if code:
            raise WorkRefused(f"the clone's {name} is not a pack: {errors}", suggestion="git repack -ad")
    if commit == base:
        return
    code, found, errors = git.outcome(into, "cat-file", "-t", commit)
    if not code and found.strip() == b"commit":
        code, _, errors = git.outcome(into, "rev-list", "--objects", "--quiet", commit, "--not", base)
        if not code:
            return
    raise WorkRefused(
        f"the clone's commit {commit[:12]} is incomplete: {errors}",
        suggestion="git fsck names what is missing",
    )


def export_commits(
    git: Git, quarantine: PrivateRepository, person: PrivateRepository, commits: Collection[str], base: str
) -> None:
    """Copy ``commits`` to the person's repository, with the objects it lacks since ``base``. git checks each object on
    arrival. Raises WorkRefused for what it rejects."""
    pack = quarantine.path / "outgoing.pack"
    wanted = "".join(f"{commit}\n" for commit in (*commits, f"^{base}")).encode()
    with open(pack, "xb") as file:
        # Without deltas, as ``git commit`` stores them: repacking finds what they have in common.
        words = ("pack-objects", "--revs", "--stdout", "--thin", "--window=0", "-q")
        git.private(quarantine, *words, stdin=wanted, output=file)
    with open(pack, "rb") as file:
        count = int.from_bytes(os.pread(file.fileno(), 4, 8), "big")
        if count == 0:
            return
        few, many = ("unpack-objects", "-q"), ("index-pack", "--stdin", "--fix-thin")
        code, _, errors = git.outcome(person, *(few if count < FEW else many), "--strict", stdin=file)
    if code:
        raise WorkRefused(
            f"git rejects what the agent committed: {errors}",
            suggestion="git log -p shows the commits; make them again without it",
        )
