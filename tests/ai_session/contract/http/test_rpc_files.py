"""filesystem.*: what is in the workspace and nothing else, by whatever path, link or race; protected files; modes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session.tools.files.plugin import MAX_READ_BYTES
from tests.ai_session.support.asking import approvals, control
from tests.ai_session.support.mcp_client import stop_daemons
from tests.ai_session.support.rpc_servers import RpcHome, new_rpc_home, serving

pytestmark = pytest.mark.anyio

AT_FDCWD, RENAME_EXCHANGE = -100, 2
SECRET = "what lies outside"
TOKEN = "ghp_" + "Ab3" * 12


@pytest.fixture(scope="module")
def rpc_home(homes: Path) -> Iterator[RpcHome]:
    rpc_home = new_rpc_home(homes)
    ws, outside = rpc_home.workspace, rpc_home.home / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (rpc_home.home / "ws-of-another").mkdir()
    (rpc_home.home / "ws-of-another/secret.txt").write_text(SECRET)
    (ws / "in").mkdir()
    (ws / "in/file.txt").write_text("inside")
    links = {
        "to_file": outside / "secret.txt",
        "to_directory": outside,
        "to_root": "/",
        "up": "..",
        "far": "../" * 40 + str(outside)[1:],
        "chain": "to_directory",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
        "proc": "/proc/self/root",
        "own_fd": "/proc/self/fd/0",
        "dangling": outside / "made_by_link.txt",
        "alias": "/data/../outside",
        "fine": "in/file.txt",
        "whole": str(ws / "in"),
    }
    for name, target in links.items():
        (ws / name).symlink_to(target)
    yield rpc_home
    stop_daemons(rpc_home.home)


def attacks(rpc_home: RpcHome) -> list[str]:
    """Paths that lead elsewhere, or nowhere."""
    outside = rpc_home.home / "outside/secret.txt"
    return [
        "../outside/secret.txt",
        "in/../../outside/secret.txt",
        "./.././outside/secret.txt",
        "in/../in/../../outside/secret.txt",
        "missing/../../outside/secret.txt",
        "../ws/../outside/secret.txt",
        "../ws/in/file.txt",
        "../ws-of-another/secret.txt",
        str(outside),
        f"/{outside}",
        f"//{outside}",
        f"{rpc_home.workspace}/../outside/secret.txt",
        f"{rpc_home.workspace}-of-another/secret.txt",
        "/data/../outside/secret.txt",
        f"/data/..{outside}",
        "/database/secret.txt",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/cwd/in/file.txt",
        "/dev/zero",
        "~/outside/secret.txt",
        "..",
        "/",
        "\0",
        "in/file.txt\0.txt",
        "\ud800",
        "in/file.txt/more",
        "x" * 300,
        "in/" * 1000 + "x",
        "..\\outside\\secret.txt",
        "%2e%2e/outside/secret.txt",
        "to_file",
        "to_directory/secret.txt",
        f"to_root{outside}",
        "up/outside/secret.txt",
        "far/secret.txt",
        "chain/secret.txt",
        "loop",
        "ping/x",
        f"proc{outside}",
        "own_fd",
        "dangling",
        "alias/secret.txt",
        "in/../to_directory/../outside/secret.txt",
    ]


def around(rpc_home: RpcHome) -> dict[Path, bytes]:
    """Everything in the home but the workspace, and what ai-session keeps for itself."""
    found = [path for path in rpc_home.home.rglob("*") if rpc_home.workspace not in path.parents]
    return {path: path.read_bytes() if path.is_file() else b"" for path in found if ".local" not in path.parts}


REFUSED = (
    "Error: The path leads out of the workspace.",
    "Error: The path",
    "Error: File not found at specified path.",
    "Error: A name in the path is too long.",
    "Error: A parent of the path is not a directory.",
)
MADE_INSIDE = {"~/outside/secret.txt", "..\\outside\\secret.txt", "%2e%2e/outside/secret.txt"}
"""Plain names, however they look."""


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.torture)])
async def test_no_path_leads_out(rpc_home: RpcHome, step: int) -> None:
    before = around(rpc_home)
    assert len(attacks(rpc_home)) >= 40
    async with serving(rpc_home) as here:
        for path in attacks(rpc_home)[::step]:
            for method, params in (
                ("filesystem.readFile", {"path": path}),
                ("filesystem.listDirectory", {"path": path}),
                ("filesystem.writeFile", {"path": path, "content": "changed"}),
            ):
                if method.endswith("writeFile") and path in MADE_INSIDE:
                    continue
                reported = (await here.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).json()
                answer = str(reported.get("result", reported))
                assert SECRET not in answer, path
                assert "root:" not in answer
                if "error" not in reported:
                    assert reported["result"].get("isError"), (method, path, reported)
                    assert reported["result"]["content"][0]["text"].startswith(REFUSED), (method, path, reported)
    assert around(rpc_home) == before
    assert (rpc_home.workspace / "in/file.txt").read_text() == "inside"


async def test_links_inside_are_followed_and_kept(rpc_home: RpcHome) -> None:
    async with serving(rpc_home) as here:
        for path in ("fine", "whole/file.txt", "/data/fine", f"{rpc_home.workspace}/in/../whole//./file.txt"):
            assert await here.text("filesystem.readFile", path=path) == "inside"
        await here.text("filesystem.writeFile", path="fine", content="by link")
        assert (rpc_home.workspace / "fine").is_symlink()
        assert (rpc_home.workspace / "in/file.txt").read_text() == "by link"
        await here.text("filesystem.writeFile", path="whole/file.txt", content="inside")
        names = (await here.text("filesystem.listDirectory", path="/data")).splitlines()
        assert {"[DIR] in", "[LINK] fine", "[LINK] to_root"} <= set(names)
        assert await here.text("filesystem.listDirectory", path="whole") == "[FILE] file.txt"


async def test_a_place_that_is_swapped_for_a_link_meanwhile(rpc_home: RpcHome) -> None:
    """A thread exchanges a directory and a link to the outside as fast as it can."""
    ws = rpc_home.workspace
    (ws / "swapped").mkdir()
    (ws / "swapped/secret.txt").write_text("inside")
    (ws / "evil").symlink_to("../outside")
    over = False

    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    ends = [os.fsencode(ws / name) for name in ("swapped", "evil")]

    def swap() -> None:
        while not over:
            assert exchange(AT_FDCWD, ends[0], AT_FDCWD, ends[1], RENAME_EXCHANGE) == 0

    swapping = asyncio.create_task(asyncio.to_thread(swap))
    seen: set[str] = set()
    async with serving(rpc_home) as here:
        for number in range(20):
            read = await here.method("filesystem.readFile", {"path": "swapped/secret.txt"})
            wrote = await here.method("filesystem.writeFile", {"path": f"swapped/new{number % 3}.txt", "content": "n"})
            seen |= {read["content"][0]["text"], wrote["content"][0]["text"]}
        over = True
        await swapping
    assert SECRET not in seen
    assert len(seen) > 1
    assert [path.name for path in (rpc_home.home / "outside").iterdir()] == ["secret.txt"]


async def test_what_is_no_plain_file(rpc_home: RpcHome) -> None:
    ws = rpc_home.workspace
    os.mkfifo(ws / "pipe")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(ws):
        listener.bind("socket")
    special = ["pipe", "socket", "in", "."]
    if os.geteuid() == 0:
        os.mknod(ws / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        special.append("zero")
    async with serving(rpc_home) as here:
        for path in special:
            for method in ("readFile", "writeFile"):
                params = {"path": path} | ({"content": "x"} if method == "writeFile" else {})
                assert (
                    "directory" in (reported := await here.failure(f"filesystem.{method}", **params))
                    or "device" in reported
                )
        assert "[OTHER] pipe" in await here.text("filesystem.listDirectory", path=".")
        with (ws / "huge").open("wb") as file:
            file.truncate(100 << 30)
        assert "too large" in await here.failure("filesystem.readFile", path="huge")
        (ws / "huge").unlink()
        (ws / "most").write_text("x" * MAX_READ_BYTES)
        assert len(await here.text("filesystem.readFile", path="most")) == MAX_READ_BYTES


async def test_texts_bytes_and_modes_are_kept(rpc_home: RpcHome) -> None:
    ws = rpc_home.workspace
    async with serving(rpc_home) as here:
        for text in ("", "\0\r\n\ufeff\u2028😀\x1b[1m", "ä" * 1000):
            await here.text("filesystem.writeFile", path="deep/er/text.txt", content=text)
            assert (ws / "deep/er/text.txt").read_bytes() == text.encode()
            assert await here.text("filesystem.readFile", path="deep/er/text.txt") == text
        binary = bytes(range(256))
        encoded = base64.b64encode(binary).decode()
        await here.text("filesystem.writeFile", path="binary", content=encoded, encoding="base64")
        assert (ws / "binary").read_bytes() == binary
        reported = (await here.method("filesystem.readFile", {"path": "binary"}))["content"]
        assert reported == [{"type": "text", "text": encoded, "encoding": "base64"}]
        (ws / "script.sh").write_text("old")
        (ws / "script.sh").chmod(0o751)
        before = (ws / "script.sh").stat().st_ino
        await here.text("filesystem.writeFile", path="script.sh", content="new")
        assert stat.S_IMODE((ws / "script.sh").stat().st_mode) == 0o751
        assert (ws / "script.sh").stat().st_ino != before
        assert await here.text("filesystem.listDirectory", path="deep/er") == "[FILE] text.txt"
        (ws / "token").write_text(f"token = {TOKEN}\n")
        (ws / "token.bin").write_bytes(b"\xff" + f" token = {TOKEN}\n".encode())
        assert TOKEN not in await here.text("filesystem.readFile", path="token")
        assert TOKEN.encode() not in base64.b64decode(await here.text("filesystem.readFile", path="token.bin"))


async def test_protected_files(rpc_home: RpcHome) -> None:
    ws = rpc_home.workspace
    secrets = (".env", ".env.local", ".env~", "prod.env", "deep/secrets.env", "server.pem")
    for name in (*secrets, ".git/config", ".git/HEAD", "sub/.git/config", "sub/.git/HEAD"):
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text(SECRET)
    (ws / "innocent").symlink_to(".env")
    hidden = (*secrets, "innocent", "in/../.env", "new.key")
    unwritten = (
        *(".git/config", ".git/hooks/pre-commit", ".GIT/config", "sub/.git/info/x", ".vscode/tasks.json", ".mcp.json"),
        *(".claude/settings.json", "sub/.envrc", ".npmrc", "sub/.git"),
    )
    async with serving(rpc_home) as here:
        for path in hidden:
            assert "protected" in await here.failure("filesystem.readFile", path=path)
            assert "protected" in await here.failure("filesystem.writeFile", path=path, content="x")
        for path in unwritten:
            assert "protected" in await here.failure("filesystem.writeFile", path=path, content="x")
        assert await here.text("filesystem.readFile", path=".git/config") == SECRET
        assert (ws / ".env").read_text() == SECRET
        assert not (ws / ".vscode").exists()


RULES = """
[[policy.rules]]
id = "asked"
decision = "ask"
paths = ["**/asked"]

[[policy.rules]]
id = "closed"
decision = "deny"
paths = ["**/closed/**"]

[[policy.rules]]
id = "no-python"
decision = "deny"
commands = ["python3"]
"""


async def test_rules_and_modes_hold_for_files_and_code(homes: Path) -> None:
    rpc_home = new_rpc_home(homes, RULES)
    (rpc_home.workspace / "closed").mkdir()
    (rpc_home.workspace / "closed/a").write_text(SECRET)
    (rpc_home.workspace / "open").symlink_to("closed")
    try:
        async with serving(rpc_home) as here:
            for path in ("closed/a", "open/a", "closed/../open/a"):
                assert "denied by closed" in await here.failure("filesystem.readFile", path=path)
                assert "denied by closed" in await here.failure("filesystem.writeFile", path=path, content="")
            reported = await here.failure("code.runPython", code="print(1)")
            assert reported.startswith("Error: run_python is denied by no-python")
            reported = await here.failure("filesystem.writeFile", path="asked", content="x")
            assert reported.startswith("Error: write_file needs a person's consent (asked)")
            assert not (rpc_home.workspace / "asked").exists()
            (question,) = approvals(rpc_home.home)["questions"]
            assert f"write_file (below {rpc_home.workspace}):\n    {rpc_home.workspace}/asked\n" in question["message"]
            assert (rpc_home.workspace / "closed/a").read_text() == SECRET
            control(rpc_home.home, "policy", mode="read-only")
            reported = await here.failure("filesystem.writeFile", path="b", content="b")
            assert reported.startswith("Error: write_file is denied by default:read-only")
            assert not (rpc_home.workspace / "b").exists()
    finally:
        stop_daemons(rpc_home.home)


@pytest.mark.torture
async def test_a_read_only_profile_is_read_only(homes: Path) -> None:
    rpc_home = new_rpc_home(homes, '[sandbox]\nprofile = "read-only"\n')
    (rpc_home.workspace / "a").write_text("a")
    try:
        async with serving(rpc_home) as here:
            assert await here.text("filesystem.readFile", path="a") == "a"
            assert "read-only" in await here.failure("filesystem.writeFile", path="a", content="b")
            assert (rpc_home.workspace / "a").read_text() == "a"
    finally:
        stop_daemons(rpc_home.home)
