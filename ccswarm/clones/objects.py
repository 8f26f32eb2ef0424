"""Takes commits over from a repository that somebody else may write, without any git looking into that repository.

Only what git recomputes on arrival is copied: loose objects and packs, into a repository of ours. Nothing of it that
leads elsewhere or names programs (configuration, alternates, indexes of packs, graphs, replaced objects) is looked at.
Methods block.
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
"""Objects; more stay together in a pack."""


def packs_of(tree: UntrustedTree) -> list[str]:
    """The names of a clone's packs."""
    names = (entry.path.rpartition("/")[2] for entry in tree.list(".git/objects/pack").entries)
    return [name for name in names if PACK.fullmatch(name)]


def tip(tree: UntrustedTree, branch: str) -> str:
    """The commit that a branch of the clone is at. Raises WorkRefused."""
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


def take(
    tree: UntrustedTree,
    git: Git,
    repository: Repository,
    into: PrivateRepository,
    commit: str,
    *,
    packs: Collection[str],
    base: str,
) -> None:
    """Have ``commit``, with all it consists of, in a repository of ours over the person's. The clone was made with
    ``packs`` from ``base``, which are not looked at again. Raises WorkRefused where it does not hold the commit whole.
    """
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
            code, _, said = git.outcome(into, "index-pack", "--stdin", "--fix-thin", stdin=pack)
        copied.unlink()
        if code:
            raise WorkRefused(f"the clone's {name} is not a pack: {said}", suggestion="git repack -ad")
    if commit == base:
        return
    code, found, said = git.outcome(into, "cat-file", "-t", commit)
    if not code and found.strip() == b"commit":
        code, _, said = git.outcome(into, "rev-list", "--objects", "--quiet", commit, "--not", base)
        if not code:
            return
    raise WorkRefused(
        f"the clone's commit {commit[:12]} is incomplete: {said}",
        suggestion="git fsck names what is missing",
    )


def bring(
    git: Git, quarantine: PrivateRepository, person: PrivateRepository, commits: Collection[str], base: str
) -> None:
    """Give the person's repository ``commits`` with all it lacks of them since ``base``, checked object by object on
    arrival. Raises WorkRefused for what git would not take from a stranger."""
    pack = quarantine.path / "outgoing.pack"
    wanted = "".join(f"{commit}\n" for commit in (*commits, f"^{base}")).encode()
    with open(pack, "xb") as file:
        # Whole, as ``git commit`` keeps them: what they have in common is found when the repository is packed.
        words = ("pack-objects", "--revs", "--stdout", "--thin", "--window=0", "-q")
        git.private(quarantine, *words, stdin=wanted, output=file)
    with open(pack, "rb") as file:
        count = int.from_bytes(os.pread(file.fileno(), 4, 8), "big")
        if count == 0:
            return
        few, many = ("unpack-objects", "-q"), ("index-pack", "--stdin", "--fix-thin")
        code, _, said = git.outcome(person, *(few if count < FEW else many), "--strict", stdin=file)
    if code:
        raise WorkRefused(
            f"git rejects what the agent committed: {said}",
            suggestion="git log -p shows the commits; make them again without it",
        )
