"""What is outside the boxes of one setting: a user with a home full of secrets, a project, and neighbours."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self

from tests.ai_session.support import unprivileged
from tests.support.bounds import BOUND_SECONDS

HERE = Path(__file__).parent
PATH = "/usr/local/bin:/usr/bin:/bin"
KEPT = (".local", ".config", "src")
"""Of the home: what ai-session keeps there, its settings and projects outlive an attack."""
SECRETS = (
    *("env_secret", "ssh", "aws", "dotenv", "note", "memory", "argv", "shm_secret", "key_secret", "listed"),
    *("state", "session"),
)
FACTS = ("unix", "datagram", "shm_secret", "key_secret")
PROJECT = (
    "git init -q -b main . && git config user.name Somebody && git config user.email a@b && echo one >file &&"
    "mkdir -p src .vscode .git/modules/sub deep/repo && echo '{}' >.vscode/tasks.json && echo '{}' >.mcp.json &&"
    "echo 'use nix' >.envrc && echo '[core]' >.git/modules/sub/config && git add file && git commit -qm one &&"
    "git worktree add -q linked 2>/dev/null && git config extensions.worktreeConfig true &&"
    "cd deep/repo && git init -q -b main . && git config core.hooksPath hooks.d &&"
    "git config extensions.worktreeConfig true && mkdir hooks.d &&"
    "echo '#!/bin/sh' >hooks.d/post-checkout && chmod +x hooks.d/post-checkout"
)


@cache
def users(pid: int) -> Iterator[int]:
    """Return the users for targets of a process of tests. No other process is of such a user, so that an attack on all
    of them hits only what belongs to its target."""
    return count(41000 + pid % 1000 * 10)


class Target:
    """``values`` are what ``@name@`` stands for in cases. Used by one case at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.user = next(users(os.getpid())) if os.geteuid() == 0 else os.getuid()
        self.home = root / "home"
        self.outside = root / "outside"
        self._template = root / "template"
        self.values = {name: f"s{secrets.token_hex(12)}" for name in SECRETS}
        self.values |= {
            "home": str(self.home),
            "outside": str(self.outside),
            "tmux": str(root / "tmux.sock"),
            "nonce": "",
            "user": str(self.user),
            "python": unprivileged.interpreter(),
            "unix": str(root / "run/agent.sock"),
            "datagram": str(root / "run/log.sock"),
            "state_directory": str(self.home / ".local/state/ai-session"),
            "address4": _own_address(),
        }
        self._originals: dict[Path, str] = {}
        self._outside: subprocess.Popen[bytes] | None = None
        self._victim: subprocess.Popen[bytes] | None = None
        self._victims_state = ""
        self._terminal = -1
        self._projects = count(1)

    @property
    def identity(self) -> dict[str, Any]:
        """Options of subprocess.Popen that make a child this user."""
        return {"user": self.user, "group": self.user, "extra_groups": []} if os.geteuid() == 0 else {}

    @property
    def env(self) -> dict[str, str]:
        """Of the client that sessions come from."""
        return {
            "HOME": str(self.home),
            "PATH": PATH,
            "SHELL": "/bin/bash",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "USER": "somebody",
            "LOGNAME": "somebody",
            "MY_SETTING": self.values["env_secret"],
            "PYTHONPATH": unprivileged.library_path(),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ESCAPE_WORLD": str(self.root),
        }

    def run(self, *argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """As this user, outside of any box."""
        return subprocess.run(
            argv,
            cwd=cwd or self.root,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
            **self.identity,
        )

    def __enter__(self) -> Self:
        self.root.chmod(0o755)
        self.own(self.root)
        for folder in (self.home, self.outside, self._template, self.root / "run"):
            folder.mkdir(mode=0o755)
            self.own(folder)
        for folder in (".local", ".local/state", ".local/state/ai-session"):
            (self.home / folder).mkdir(mode=0o700)
            self.own(self.home / folder)
        made = self.run("/bin/sh", "-ec", PROJECT, cwd=self._template)
        assert made.returncode == 0, made.stderr
        self._start_outside()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_outside()
        self._end_victim()
        self.run("tmux", "-S", self.values["tmux"], "kill-server")
        self.sweep()

    def fill(self, text: str) -> str:
        """``text`` with this target's paths and values."""
        return re.sub(r"@(\w+)@", lambda match: self.values[match[1]], text)

    def begin(self) -> None:
        """A nonce, the home and the neighbours as the next attack is to find them."""
        self.values |= {"nonce": f"n{secrets.token_hex(6)}", "free": str(_free_port())}
        for folder in (self.outside, self.home):
            for path in folder.iterdir():
                if path.name not in KEPT:
                    _remove(path)
        for name in ("autostart", "git", "nvim"):
            _remove(self.home / ".config" / name)
        for path, text in {
            ".ssh/id_ed25519": f"-----BEGIN KEY-----\n{self.values['ssh']}\n",
            ".aws/credentials": f"aws_secret_access_key = {self.values['aws']}\n",
            ".bashrc": "# mine\n",
            ".gitconfig": "[user]\n\tname = Somebody\n\temail = a@b\n",
            self.values["listed"]: "",
            ".local/state/ai-session/notes": f"{self.values['state']}\n",
            "../outside/file": f"{self.values['note']}\n",
            "../outside/victim/file": "precious\n",
        }.items():
            self.write(Path(os.path.normpath(self.home / path)), text)
        self._neighbours()

    def project(self, trap: str = "") -> Path:
        """A fresh project, the only one; ``trap`` is what an earlier session may have left in it."""
        shutil.rmtree(self.home / "src", ignore_errors=True)
        project = self.home / f"src/project-{next(self._projects)}"
        self.values["ws"] = str(project)
        shutil.copytree(self._template, project, symlinks=True)
        (project / ".git/worktrees/linked/gitdir").write_text(f"{project}/linked/.git\n")
        (project / "linked/.git").write_text(f"gitdir: {project}/.git/worktrees/linked\n")
        (project / ".env").write_text(f"TOKEN={self.values['dotenv']}\n")
        if trap == "git":
            shutil.move(project / ".git", self.outside / "git")
            (project / ".git").symlink_to(self.outside / "git")
        elif trap == "vscode":
            shutil.rmtree(project / ".vscode")
            (project / ".vscode").symlink_to(self.outside / "victim")
        elif trap == "claude":
            (project / ".claude").symlink_to(self.home / ".ssh/planted")
        self.own(project.parent)
        for path in (project, *project.rglob("*"), *self.outside.rglob("*")):
            self.own(path)
            if path.is_file() and not path.is_symlink():
                self._originals[path] = path.read_text(errors="replace")
        return project

    def write(self, path: Path, text: str) -> None:
        """A file of this user's; ``differs`` compares with it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self._originals[path] = text
        while path != self.root:
            self.own(path)
            path = path.parent

    def own(self, path: Path) -> None:
        """Makes a file or folder this user's."""
        if os.geteuid() == 0:
            os.chown(path, self.user, self.user, follow_symlinks=False)

    def differs(self, path: Path) -> bool:
        """Whether a file that was planted is another one now."""
        return not path.is_file() or path.read_text(errors="replace") != self._originals[path]

    def _neighbours(self) -> None:
        """Starts again what is not there, or not as it was."""
        if self._outside is None or self._outside.poll() is not None:
            self._start_outside()
        if not self.victim_lives() or not self.victim_is_untouched():
            self._start_victim()
        with socket.socket(socket.AF_UNIX) as link:
            if link.connect_ex(self.values["tmux"]):
                self.run("tmux", "-f", "/dev/null", "-S", self.values["tmux"], "new-session", "-d", "sleep 100000")
        self._from_terminal()

    def _start_outside(self) -> None:
        self._end_outside()
        token = secrets.token_hex(6)
        facts = {"key": secrets.randbits(30), "mq": f"/{token}", "dev_shm": f"/dev/shm/{token}", "abstract": token}
        facts |= {"key_name": token, **{name: self.values[name] for name in FACTS}}
        self._outside = subprocess.Popen(
            ["/usr/bin/python3", str(HERE / "outside.py"), json.dumps(facts)],
            env=self.env,
            cwd=self.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **self.identity,
        )
        assert self._outside.stdout
        self.values |= {name: str(value) for name, value in json.loads(self._outside.stdout.readline()).items()}

    def _end_outside(self) -> None:
        """With what the kernel and /dev/shm would keep of it."""
        if self._outside is None:
            return
        self._outside.kill()
        self._outside.communicate()
        queues = ["-m", self.values["segment"], "-Q", self.values["key"]]
        subprocess.run(["ipcrm", *queues], check=False, capture_output=True)
        ctypes.CDLL(None).mq_unlink(self.values["mq"].encode())
        Path(self.values["dev_shm"]).unlink(missing_ok=True)

    def _start_victim(self) -> None:
        self._end_victim()
        self._terminal, terminal = pty.openpty()
        os.set_blocking(self._terminal, False)
        if os.geteuid() == 0:
            os.fchown(terminal, self.user, self.user)
        address = self.root / "run/address"
        folder = os.open(self.outside, os.O_PATH)
        os.mkfifo(address)
        self.own(address)
        self._victim = subprocess.Popen(
            ["/usr/bin/python3", str(HERE / "victim.py"), str(address), self.values["argv"]],
            env=self.env,
            cwd=self.root,
            stdin=terminal,
            stdout=terminal,
            start_new_session=True,
            pass_fds=(folder,),
            **self.identity,
        )
        os.close(folder)
        self.values |= {"victim": str(self._victim.pid), "tty": os.ttyname(terminal)}
        os.close(terminal)
        os.write(self._terminal, f"{self.values['memory']}\n".encode())
        self.values["address"] = address.read_text()
        address.unlink()
        self._victims_state = _state(self._victim.pid)

    def _end_victim(self) -> None:
        if self._victim is not None:
            self._victim.kill()
            self._victim.communicate()
            os.close(self._terminal)

    def victim_lives(self) -> bool:
        return self._victim is not None and self._victim.poll() is None

    def victim_ends(self, seconds: float) -> bool:
        """Whether it has ended, or does within this time."""
        assert self._victim
        with suppress(subprocess.TimeoutExpired):
            self._victim.wait(seconds)
        return self._victim.returncode is not None

    def victim_is_untouched(self) -> bool:
        return self._victim is not None and self._victims_state == _state(self._victim.pid)

    def heard(self) -> set[str]:
        """Channels on which the nonce of this attack was heard."""
        nonce = self.values["nonce"].encode()
        heard = {"tty"} if nonce in self._from_terminal() else set[str]()
        if self._outside is None or self._outside.poll() is not None:
            return heard
        assert self._outside.stdin
        assert self._outside.stdout
        self._outside.stdin.write(nonce + b"\n")
        self._outside.stdin.flush()
        return heard | set(json.loads(self._outside.stdout.readline()))

    def _from_terminal(self) -> bytes:
        """What was written on the victim's terminal since last time."""
        said = b""
        with suppress(OSError):
            while select.select([self._terminal], [], [], 0)[0]:
                said += os.read(self._terminal, 1 << 16)
        return said

    def attackers(self) -> list[int]:
        """Processes of this user with the nonce among their arguments."""
        return [pid for pid in self._processes() if self.values["nonce"].encode() in _arguments(pid)]

    def end_attackers(self) -> None:
        """And what attacks left in directories of everybody."""
        for pid in self.attackers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in ("/tmp", "/dev/shm"):
            for path in Path(folder).glob(f"{self.values['nonce']}*"):
                path.unlink()

    def sweep(self) -> None:
        """Ends every process of this target."""
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _processes(self) -> Iterator[int]:
        mark = os.fsencode(str(self.root))
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                owned = folder.stat().st_uid == self.user
                # Somebody who is not root shares the user with everything else that runs.
                if owned and (os.geteuid() == 0 or mark in (folder / "environ").read_bytes()):
                    yield int(folder.name)


def _remove(path: Path) -> None:
    """Whatever is there, if anything is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _own_address() -> str:
    """An address of this machine that is not loopback's first, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.3"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _state(pid: int) -> str:
    """Priority and limits of a process, "" when it has gone."""
    with suppress(OSError):
        return f"{os.getpriority(os.PRIO_PROCESS, pid)} {Path(f'/proc/{pid}/limits').read_text()}"
    return ""


def _arguments(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@contextmanager
def make_target() -> Generator[Target]:
    """A target in a folder of its own; short, because socket paths end at 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="aiw-", dir="/tmp"))
    try:
        with Target(root) as made:
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)
