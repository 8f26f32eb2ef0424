"""Run the tests under every supported Python, with the lowest and the highest supported versions of the dependencies.

``scripts/matrix.py [PYTEST'S ARGUMENTS]``. A Python that is not installed is reported and skipped. The lowest versions
are those of ``pyproject.toml``, the highest those that its ranges allow today.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FAST = ("tests/agentwire", "tests/ai_session/unit", "tests/ccswarm/unit")
PYTEST = ("-q", "--workers", "4", "-p", "no:libtmux")
"""Excludes the plug-in of libtmux, whose lowest version breaks current pytest."""

LOWEST = re.compile(r"([\w-]+)(?:\[[^]]*\])?>=([\w.]+)")


def interpreter(version: str) -> str | None:
    """Return a Python of that version that can create virtual environments, or None."""
    programs = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    for program in filter(None, programs):
        check = [program, "-c", "import ensurepip, venv"]
        if subprocess.run(check, check=False, capture_output=True).returncode == 0:
            return str(program)
    return None


def lowest_pins() -> Iterator[str]:
    """Yield a pin to the lower end of each range, without the packages for development."""
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    for wanted in [*PROJECT["dependencies"], *extras["llm"], *extras["otel"]]:
        if found := LOWEST.match(wanted):
            yield f"{found[1]}=={found[2]}"


def environment(program: str, version: str, kind: str) -> Path:
    """Create a virtual environment with the project installed, and return it. Raises CalledProcessError."""
    folder = ROOT / "build/matrix" / f"{version}-{kind}"
    subprocess.run([program, "-m", "venv", "--clear", folder], check=True)
    install = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check", "-e", f"{ROOT}[dev]"]
    if kind == "lowest":
        (constraints := folder / "lowest.txt").write_text("\n".join(lowest_pins()) + "\n")
        install += ["-c", constraints]
    subprocess.run(install, check=True, cwd=ROOT)
    return folder


def main(arguments: list[str]) -> int:
    """Return the exit code: 0 if every combination that could be tried passed."""
    results: dict[str, str] = {}
    for version in VERSIONS:
        program = interpreter(version)
        for kind in ("lowest", "highest") if program else ():
            name = f"{version} {kind}"
            print(f"matrix: Python {name}", flush=True)
            try:
                folder = environment(str(program), version, kind)
            except subprocess.CalledProcessError as error:
                results[name] = f"cannot be installed (exit code {error.returncode})"
                continue
            tests = [folder / "bin/python", "-m", "pytest", *PYTEST, *(arguments or FAST)]
            code = subprocess.run(tests, check=False, cwd=ROOT).returncode
            results[name] = "passed" if code == 0 else f"failed (exit code {code})"
        if program is None:
            results[version] = "not tried: there is no such Python with venv here"
    for name, result in results.items():
        print(f"matrix: Python {name}: {result}")
    return int(any("tried" not in result and result != "passed" for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
