"""Writes ai_session/console/web/vendor: the files of others that the console's page loads, with their licences.

scripts/vendor.py          as they were pinned, from npm's registry by name and version
scripts/vendor.py --pin    and their digests anew, after a version was changed here
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "ai_session/console/web/vendor"
DIGESTS, LICENSES = VENDOR / "vendor.sha256", VENDOR / "LICENSES"
BOUND_SECONDS = 300


@dataclass(frozen=True)
class Package:
    """Of npm; ``files`` by the name they have here."""

    name: str
    version: str
    files: dict[str, str]


PACKAGES = (
    Package("@xterm/xterm", "6.0.0", {"xterm.mjs": "lib/xterm.mjs", "xterm.css": "css/xterm.css"}),
    Package(
        "@xterm/addon-unicode-graphemes", "0.4.0", {"addon-unicode-graphemes.mjs": "lib/addon-unicode-graphemes.mjs"}
    ),
    Package("preact", "11.2.0", {"preact.mjs": "dist/preact.mjs", "preact-hooks.mjs": "hooks/dist/hooks.mjs"}),
    Package("@preact/signals-core", "1.14.5", {"signals-core.mjs": "dist/signals-core.mjs"}),
    Package("@preact/signals", "2.11.4", {"signals.mjs": "dist/signals.mjs"}),
    Package("htm", "3.1.1", {"htm.mjs": "dist/htm.module.js"}),
    Package("@fontsource-variable/inter", "5.3.0", {"inter.woff2": "files/inter-latin-wght-normal.woff2"}),
    Package(
        "@fontsource-variable/jetbrains-mono", "5.3.0", {"mono.woff2": "files/jetbrains-mono-latin-wght-normal.woff2"}
    ),
)


def main(*, pin: bool) -> None:
    """Fetch, check, write."""
    files, licenses = dict[str, bytes](), list[str]()
    for package in PACKAGES:
        held = fetched(package)
        files |= {name: served(held[path], path) for name, path in package.files.items()}
        licenses.append(f"{package.name} {package.version}\n\n{held['LICENSE'].decode().strip()}\n")
    found = listed(files)
    if pin:
        DIGESTS.write_text(found)
    elif found != DIGESTS.read_text():
        sys.exit(f"what was fetched is not what {DIGESTS.name} pins:\n{found}")
    for name, data in files.items():
        (VENDOR / name).write_bytes(data)
    LICENSES.write_text(f"\n{'-' * 80}\n\n".join(licenses))


def fetched(package: Package) -> dict[str, bytes]:
    """The files of a package by their paths in it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ("npm", "pack", "--silent", f"{package.name}@{package.version}")
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=BOUND_SECONDS)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            members = [one for one in tar.getmembers() if one.isfile()]
            return {one.name.partition("/")[2]: file.read() for one in members if (file := tar.extractfile(one))}


def served(data: bytes, path: str) -> bytes:
    """Without the pointer to a source map, which is not here."""
    if path.endswith(".woff2"):
        return data
    return b"\n".join(line for line in data.split(b"\n") if not line.startswith(b"//# sourceMappingURL="))


def listed(files: dict[str, bytes]) -> str:
    """Their digests, as sha256sum writes them."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))


if __name__ == "__main__":
    main(pin="--pin" in sys.argv)
