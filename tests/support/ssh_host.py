"""A real ssh server and its client, with a port and keys of their own."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pexpect

from tests.support.bounds import BOUND_SECONDS
from tests.support.strangers import IS_ROOT

ROOT = Path(__file__).resolve().parents[2]
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
PRIVATE_DIRECTORY = Path("/run/sshd")
"""A directory that sshd needs if root starts it."""


class SshHost:
    """This machine, reached over ssh with the user's key."""

    def __init__(self, directory: Path, port: int) -> None:
        self.words = [
            "ssh",
            "-F",
            "none",
            "-p",
            str(port),
            "-i",
            str(directory / "user"),
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            f"UserKnownHostsFile={directory / 'known'}",
            "-o",
            "LogLevel=ERROR",
            f"{getpass.getuser()}@127.0.0.1",
        ]

    def run(self, *words: str, given: str | None = None) -> tuple[int, str]:
        """Run a verb of ai-session there without a terminal; return its exit code and all it prints."""
        done = subprocess.run(
            [*self.words, verb(*words)],
            capture_output=True,
            text=True,
            check=False,
            timeout=BOUND_SECONDS,
            **({"stdin": subprocess.DEVNULL} if given is None else {"input": given}),
        )
        return done.returncode, done.stdout + done.stderr

    def typed(self, *words: str) -> pexpect.spawn[str]:
        """Start a verb of ai-session in a terminal there."""
        line = [self.words[0], "-tt", *self.words[1:], verb(*words)]
        return pexpect.spawn(line[0], line[1:], timeout=BOUND_SECONDS, encoding="utf-8")

    def result(self, *words: str) -> tuple[int, str]:
        """Run a verb in a terminal there without typing; return its exit code and all it prints."""
        window = self.typed(*words)
        window.expect(pexpect.EOF)
        window.close()
        return window.exitstatus or 0, window.before or ""


def verb(*words: str) -> str:
    """Return a verb of ai-session as a command line for a shell."""
    return shlex.join([sys.executable, "-m", "ai_session", *words])


@contextmanager
def ssh_host(directory: Path, home: Path) -> Iterator[SshHost]:
    """Yield a listening ssh server, in which ``home`` is HOME."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    if IS_ROOT:
        PRIVATE_DIRECTORY.mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    settings: Sequence[str] = (
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {directory / 'host'}",
        f"AuthorizedKeysFile {directory / 'user.pub'}",
        "PidFile none",
        "StrictModes no",
        "PermitRootLogin yes",
        f"UsePAM {'yes' if IS_ROOT else 'no'}",  # without PAM, root's locked account cannot log in
        f"SetEnv HOME={home} PYTHONPATH={ROOT} PATH={os.environ['PATH']}",
    )
    (directory / "sshd_config").write_text("\n".join(settings) + "\n")
    server = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(directory / "sshd_config")], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr
        assert "Server listening" in (line := server.stderr.readline()), line
        yield SshHost(directory, port)
    finally:
        server.terminate()
        server.wait(BOUND_SECONDS)
        if server.stderr:
            server.stderr.close()


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
