"""Write ai_session/http/console/web/vendor: third-party files that the console's page loads, with their licences.

scripts/vendor.py          fetch the pinned versions from npm's registry, and check their digests
scripts/vendor.py --pin    record the digests, after a change of a version here
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
VENDOR = ROOT / "ai_session/http/console/web/vendor"
DIGESTS, LICENSES = VENDOR / "vendor.sha256", VENDOR / "LICENSES"
BOUND_SECONDS = 300


@dataclass(frozen=True)
class Package:
    """A package of npm; ``files`` maps names in the console to paths in the package."""

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
    files, licenses = dict[str, bytes](), list[str]()
    for package in PACKAGES:
        package_files = fetch(package)
        files |= {name: without_source_map(package_files[path], path) for name, path in package.files.items()}
        licenses.append(f"{package.name} {package.version}\n\n{package_files['LICENSE'].decode().strip()}\n")
    found = digest_lines(files)
    if pin:
        DIGESTS.write_text(found)
    elif found != DIGESTS.read_text():
        sys.exit(f"the fetched files differ from the digests in {DIGESTS.name}:\n{found}")
    for name, data in files.items():
        (VENDOR / name).write_bytes(data)
    LICENSES.write_text(f"\n{'-' * 80}\n\n".join(licenses))


def fetch(package: Package) -> dict[str, bytes]:
    """Return the files of a package by their paths in it. Raises CalledProcessError, TimeoutExpired."""
    with tempfile.TemporaryDirectory() as folder:
        command = ("npm", "pack", "--silent", f"{package.name}@{package.version}")
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=BOUND_SECONDS)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            members = [one for one in tar.getmembers() if one.isfile()]
            return {one.name.partition("/")[2]: file.read() for one in members if (file := tar.extractfile(one))}


def without_source_map(data: bytes, path: str) -> bytes:
    """Return the file without its reference to a source map, which is not vendored."""
    if path.endswith(".woff2"):
        return data
    return b"\n".join(line for line in data.split(b"\n") if not line.startswith(b"//# sourceMappingURL="))


def digest_lines(files: dict[str, bytes]) -> str:
    """Return the digests in the format of sha256sum."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))


if __name__ == "__main__":
    main(pin="--pin" in sys.argv)
